"""The same command lines with mosquitto's programs and with hpub and hsub: same output, same exit codes.

`{t}` in an argument stands for a topic of the test case. Where both differ on purpose, docs/hpub-hsub.md says
so, and the command line is not here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.clients.programs import Ended, Family, Mosquitto, run, running
from tests.needs import need_mosquitto

Seen: TypeAlias = tuple[int, bytes, str]
"""(exit code, standard output, the error line)"""

ALL_BYTES = bytes(range(256))
JSON = '{"a": 1, "b": [1, 2.50, null, {"c": "\\u00e9"}], "d": {}, "e": 1e3}'
PROPERTIES = (
    *("-V", "5", "-D", "publish", "content-type", "text/plain", "-D", "publish", "user-property", "k", "v"),
    *("-D", "publish", "user-property", "k 2", "v 2", "-D", "publish", "response-topic", "r/t"),
    *("-D", "publish", "correlation-data", "abc", "-D", "publish", "message-expiry-interval", "60"),
    *("-D", "publish", "payload-format-indicator", "1"),
)


@dataclass(frozen=True)
class Exchange:
    """A subscriber, and what is published while it listens. `before`: what is published first."""

    sub: tuple[str, ...]
    pubs: tuple[tuple[str, ...], ...] = (("-m", "hello"),)
    input: bytes = b""
    before: tuple[tuple[str, ...], ...] = ()
    in_any_order: bool = False


EXCHANGES = {
    "payload": Exchange(("-t", "{t}", "-C", "1")),
    "verbose": Exchange(("-t", "{t}", "-C", "1", "-v")),
    "no end of line": Exchange(("-t", "{t}", "-C", "2", "-N"), (("-m", "a"), ("-m", "b"))),
    "binary payload from standard input": Exchange(("-t", "{t}", "-C", "1"), (("-s",),), ALL_BYTES),
    "binary payload, no end of line": Exchange(("-t", "{t}", "-C", "1", "-N"), (("-s",),), ALL_BYTES),
    "large payload": Exchange(("-t", "{t}", "-C", "1"), (("-s",),), b"0123456789" * 10_000),
    "lines": Exchange(("-t", "{t}", "-C", "3", "-v"), (("-l",),), b"a\nb c\nd\n"),
    "lines, the last without an end": Exchange(("-t", "{t}", "-C", "2", "-v"), (("-l",),), b"a\nb"),
    "empty lines and carriage returns": Exchange(("-t", "{t}", "-C", "3", "-v"), (("-l",),), b"a\r\n\nb\n"),
    "lines at QoS 1": Exchange(("-t", "{t}", "-C", "3", "-q", "1"), (("-l", "-q", "1"),), b"a\nb\nc\n"),
    "no lines": Exchange(("-t", "{t}", "-W", "1"), (("-l",),)),
    "file": Exchange(("-t", "{t}", "-C", "1"), (("-f", "LICENSE"),)),
    "null message": Exchange(("-t", "{t}", "-C", "1"), (("-n",),)),
    "null message, verbose": Exchange(("-t", "{t}", "-C", "1", "-v"), (("-n",),)),
    "null message, verbose, no end of line": Exchange(("-t", "{t}", "-C", "1", "-v", "-N"), (("-n",),)),
    "empty message": Exchange(("-t", "{t}", "-C", "1", "-v"), (("-m", ""),)),
    "message that looks like a flag": Exchange(("-t", "{t}", "-C", "1"), (("-m", "-n"),)),
    "message in UTF-8": Exchange(("-t", "{t}/é", "-C", "1", "-v"), (("-t", "{t}/é", "-m", "naïve ☂"),)),
    "repeat": Exchange(("-t", "{t}", "-C", "3"), (("-m", "x", "--repeat", "3"),)),
    "repeat with a pause": Exchange(
        ("-t", "{t}", "-C", "2"), (("-m", "x", "--repeat", "2", "--repeat-delay", "0.1"),)
    ),
    "repeat lines, which changes nothing": Exchange(
        ("-t", "{t}", "-C", "2"), (("-l", "--repeat", "2"),), b"a\nb\n"
    ),
    "QoS 1": Exchange(("-t", "{t}", "-C", "1", "-q", "1", "-F", "%q %m %p"), (("-m", "x", "-q", "1"),)),
    "QoS 2": Exchange(("-t", "{t}", "-C", "1", "-q", "2", "-F", "%q %p"), (("-m", "x", "-q", "2"),)),
    "QoS 2 received at 1": Exchange(
        ("-t", "{t}", "-C", "1", "-q", "1", "-F", "%q %p"), (("-m", "x", "-q", "2"),)
    ),
    "QoS 1 received at 0": Exchange(("-t", "{t}", "-C", "1", "-F", "%q %m %p"), (("-m", "x", "-q", "1"),)),
    "last topic counts": Exchange(("-t", "{t}/b", "-C", "1"), (("-t", "{t}/a", "-t", "{t}/b", "-m", "x"),)),
    "several filters": Exchange(
        ("-t", "{t}/a", "-t", "{t}/b/#", "-C", "2", "-v"),
        (("-t", "{t}/a", "-m", "1"), ("-t", "{t}/c", "-m", "2"), ("-t", "{t}/b/c", "-m", "3")),
    ),
    "wildcards": Exchange(
        ("-t", "{t}/+/x", "-C", "2", "-v"),
        (("-t", "{t}/a/x", "-m", "1"), ("-t", "{t}/a/y", "-m", "2"), ("-t", "{t}/b/x", "-m", "3")),
    ),
    "filter out": Exchange(
        ("-t", "{t}/#", "-T", "{t}/b/#", "-T", "{t}/+/z", "-C", "1", "-v"),
        (("-t", "{t}/b/c", "-m", "1"), ("-t", "{t}/a/z", "-m", "2"), ("-t", "{t}/a", "-m", "3")),
    ),
    "filter out all": Exchange(("-t", "{t}", "-T", "#", "-W", "1")),
    "count before time": Exchange(("-t", "{t}", "-C", "1", "-W", "9")),
    "time before count": Exchange(("-t", "{t}", "-C", "2", "-W", "3")),
    "time, quiet": Exchange(("-t", "{t}", "-W", "1", "--quiet"), ()),
    "retained": Exchange(
        ("-t", "{t}", "-C", "1", "-F", "%r %q %p"), (), before=(("-m", "old", "-r"), ("-m", "new", "-r"))
    ),
    "retained under a wildcard": Exchange(
        ("-t", "{t}/#", "-C", "2", "-v"),
        (),
        before=(("-t", "{t}/1", "-m", "one", "-r"), ("-t", "{t}/2", "-m", "two", "-r")),
        in_any_order=True,
    ),
    "retained then cleared": Exchange(
        ("-t", "{t}", "-W", "1"), (), before=(("-m", "old", "-r"), ("-n", "-r"))
    ),
    "retained hidden": Exchange(
        ("-t", "{t}", "-R", "-C", "1", "-F", "%r %p"), (("-m", "fresh", "-r"),), before=(("-m", "old", "-r"),)
    ),
    "retained only": Exchange(
        ("-t", "{t}", "--retained-only", "-v"), (("-m", "fresh"),), before=(("-m", "old", "-r"),)
    ),
    "fresh with the retain flag": Exchange(("-t", "{t}", "-C", "1", "-F", "%r"), (("-m", "x", "-r"),)),
    "fresh, retain as published": Exchange(
        ("-t", "{t}", "-V", "5", "--retain-as-published", "-C", "1", "-F", "%r"), (("-m", "x", "-r"),)
    ),
    "end once subscribed": Exchange(("-t", "{t}", "-E"), ()),
    "client ids": Exchange(
        ("-t", "{t}", "-C", "1"), (("-m", "x", "-I", "prefix"), ("-m", "x", "--id", "name"))
    ),
    "long flags": Exchange(
        ("--topic", "{t}", "--qos", "1", "--verbose", "-C", "1", "--host", "127.0.0.1"),
        (("--message", "x", "--qos", "1", "--retain", "--host", "127.0.0.1"),),
    ),
}

FORMATS = {
    "topic": "%t|%10t|%-20t|%.3t|%12.4t|%-12.4t|%020t|",
    "payload": "%p|%10p|%-10p|%010p|%-010p|",
    "hexadecimal": "%x|%X|",
    "numbers": "%l|%5l|%05l|%-5l|%q|%5q|%r|%m|%3m|%03m|%-3m|",
    "absent properties": "%A|%5A|%05A|%C|%5C|%05C|%D|%5D|%E|%5E|%05E|%F|%3F|%P|%R|%5R|%S|%5S|%05S|",
    "escapes": r"%%|@@|\\|\a\e\n\r\t\v\0|5%5%|",
    "dates": "@Y-@m-@d @j @A @B @Z @q|",
    "masked times": "%I|%40I|%-40I|%.10I|%U|@N|@s|@H:@M:@S|",
    "text around": "topic=<%t> payload=<%p>!",
    "JSON": "%j",
    "JSON between": "[%j]|%p",
    "repeated and adjacent": "%t%t%p%p",
    "no sequence": "nothing",
    "empty": "",
}


def _formats() -> Iterator[tuple[str, Exchange]]:
    for name, form in FORMATS.items():
        yield f"format: {name}", Exchange(("-t", "{t}", "-C", "1", "-F", form))
    v5 = ("-t", "{t}", "-C", "1", "-V", "5", "-q", "1", "-F")
    publish = ("-m", JSON, "-q", "1", *PROPERTIES)
    for form in ("%C|%20C|%-20C|%.4C|", "%D|%E|%5E|%05E|%-5E|%F|%03F|", "%P|%R|%5R|%-5R|%.1R|", "%j", "%J"):
        yield f"properties: {form}", Exchange((*v5, form), (publish,))
    yield "pretty JSON", Exchange((*v5, "%J", "--pretty"), (publish,))
    yield "pretty JSON, quoted", Exchange((*v5, "%j", "--pretty"), (publish,))
    for payload in (
        "1.50",
        "true",
        "null",
        ' [ 1 , "x/y" ] ',
        '{"a":{"b":[]}}',
        '"\\u0001\\t"',
        "-0.25",
        "7",
    ):
        yield (
            f"JSON within JSON: {payload}",
            Exchange(("-t", "{t}", "-C", "1", "-F", "%J"), (("-m", payload),)),
        )
    yield "what is no JSON", Exchange(("-t", "{t}", "-C", "1", "-F", "%J"))
    yield "JSON of nothing", Exchange(("-t", "{t}", "-C", "1", "-F", "%J"), (("-n",),))
    yield "JSON, quoted", Exchange(("-t", "{t}", "-C", "1", "-F", "%j"), (("-m", 'a"b\\c\té/\x7f'),))
    yield "format and -v", Exchange(("-t", "{t}", "-C", "1", "-v", "-F", "%p"))
    yield "format and -N", Exchange(("-t", "{t}", "-C", "1", "-N", "-F", "%p"))
    yield "format of nothing", Exchange(("-t", "{t}", "-C", "1", "-F", "%p|%5p|%x|%l|"), (("-n",),))


EXCHANGES.update(_formats())

MISUSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("pub", ()),
    ("pub", ("-t", "a")),
    ("pub", ("-m", "x")),
    ("pub", ("-t", "a", "-m", "x", "-z")),
    ("pub", ("-t", "a", "-m", "x", "--unknown")),
    ("pub", ("-t", "a", "-m", "x", "extra")),
    ("pub", ("-t", "a", "-m", "x", "-C", "1")),
    ("pub", ("-t", "a/+", "-m", "x")),
    ("pub", ("-t", "a/#", "-m", "x")),
    ("pub", ("-t", "a", "-m", "x", "-q", "3")),
    ("pub", ("-t", "a", "-m", "x", "-q", "-1")),
    ("pub", ("-t", "a", "-m", "x", "-n")),
    ("pub", ("-t", "a", "-m", "x", "-m", "y")),
    ("pub", ("-t", "a", "-m")),
    ("pub", ("-t",)),
    ("pub", ("-t", "a", "-f")),
    ("pub", ("-t", "a", "-m", "x", "-i")),
    ("pub", ("-t", "a", "-m", "x", "-q")),
    ("pub", ("-t", "a", "-m", "x", "-p")),
    ("pub", ("-t", "a", "-m", "x", "-h")),
    ("pub", ("-t", "a", "-m", "x", "-i", "a", "-I", "b")),
    ("pub", ("-t", "a", "-m", "x", "--repeat", "0")),
    ("pub", ("-t", "a", "-m", "x", "--repeat")),
    ("pub", ("-t", "a", "-m", "x", "--repeat-delay", "-1")),
    ("pub", ("-t", "a", "-m", "x", "-V", "7")),
    ("pub", ("-t", "a", "-m", "x", "-k", "2")),
    ("pub", ("-t", "a", "-m", "x", "-D")),
    ("pub", ("-t", "a", "-m", "x", "-D", "publish", "unheard-of", "x")),
    ("pub", ("-t", "a", "-m", "x", "-D", "unheard-of", "content-type", "x")),
    ("pub", ("-t", "a", "-m", "x", "-D", "publish", "content-type")),
    ("pub", ("-t", "a", "-m", "x", "-D", "publish", "user-property", "name")),
    ("pub", ("-L", "http://127.0.0.1/a", "-m", "x")),
    ("sub", ()),
    ("sub", ("-C", "1")),
    ("sub", ("-t",)),
    ("sub", ("-t", "a/#/b")),
    ("sub", ("-t", "a", "-t", "b+")),
    ("sub", ("-t", "a", "-T", "a/#/b")),
    ("sub", ("-t", "a", "-T")),
    ("sub", ("-t", "a", "-q", "5")),
    ("sub", ("-t", "a", "-C", "0")),
    ("sub", ("-t", "a", "-C", "-1")),
    ("sub", ("-t", "a", "-C")),
    ("sub", ("-t", "a", "-W", "0")),
    ("sub", ("-t", "a", "-W")),
    ("sub", ("-t", "a", "-F")),
    ("sub", ("-t", "a", "-F", "%z")),
    ("sub", ("-t", "a", "-F", "%--5t")),
    ("sub", ("-t", "a", "-F", "%0-5l")),
    ("sub", ("-t", "a", "-F", "text %")),
    ("sub", ("-t", "a", "-F", "text @")),
    ("sub", ("-t", "a", "-F", "text \\q")),
    ("sub", ("-t", "a", "-F", "text \\")),
    ("sub", ("-t", "a", "-R", "--retained-only")),
    ("sub", ("-t", "a", "--random-filter", "0")),
    ("sub", ("-t", "a", "-m", "x")),
)


@pytest.mark.parametrize("name", EXCHANGES)
def test_both_pairs_of_programs_print_the_same(families: tuple[Family, Family], name: str) -> None:
    exchange, topic = EXCHANGES[name], f"t{list(EXCHANGES).index(name)}"
    with ThreadPoolExecutor() as both:
        theirs, ours = both.map(lambda family: _hold(family, exchange, topic), families)
    assert ours == theirs


@pytest.mark.parametrize(("program", "arguments"), MISUSES, ids=lambda value: " ".join(value) or "none")
def test_both_pairs_of_programs_report_the_same_usage_errors(
    program: str, arguments: tuple[str, ...]
) -> None:
    need_mosquitto()
    theirs = run(Mosquitto(1, Path()).command(program, *arguments))
    ours = run([*_ours(program), "-p", "1", *arguments])
    assert (ours.code, ours.complaint) == (theirs.code, theirs.complaint)
    assert ours.code == 1
    assert f"Use 'h{program} --help'" in ours.errors


def test_the_tables_have_enough_cases() -> None:
    assert len(EXCHANGES) + len(MISUSES) >= 40


def _ours(program: str) -> list[str]:
    return [sys.executable, "-m", f"hbroker.clients.h{program}"]


def _hold(family: Family, exchange: Exchange, topic: str) -> tuple[Seen, list[Seen]]:
    def published(arguments: tuple[str, ...]) -> Seen:
        own = _in(arguments, topic)
        place = () if "-t" in own else ("-t", topic)
        return _masked(run(family.command("pub", *place, *own), exchange.input), exchange)

    before = [published(arguments) for arguments in exchange.before]
    arguments = _in(exchange.sub, topic)
    guard = () if "-W" in arguments else ("-W", "15")
    pubs = []
    with running(family.command("sub", "-i", topic, *guard, *arguments)) as end:
        if exchange.pubs:
            family.await_subscriber(topic, _topic(_in(exchange.pubs[0], topic), topic))
            pubs = [published(arguments) for arguments in exchange.pubs]
        return _masked(end(), exchange), before + pubs


def _topic(arguments: tuple[str, ...], default: str) -> str:
    """The topic of this command line: the last one counts."""
    named = [value for flag, value in pairwise(arguments) if flag == "-t"]
    return named[-1] if named else default


def _in(arguments: tuple[str, ...], topic: str) -> tuple[str, ...]:
    return tuple(argument.replace("{t}", topic) for argument in arguments)


def _masked(ended: Ended, exchange: Exchange) -> Seen:
    """Masks the times, which differ between the programs. Only their form is compared."""
    output = re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z?([+-]\d{4})?", b"<time>", ended.output)
    if any("%U" in argument for argument in exchange.sub):
        output = re.sub(rb"\d", b"9", output)
    if exchange.in_any_order:
        output = b"\n".join(sorted(output.splitlines()))
    return ended.code, output, ended.complaint
