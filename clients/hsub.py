"""hsub: subscribes and prints messages, with the flags of mosquitto_sub.

A message passes these filters in this order: `--retained-only` (the first message that is not retained ends
the program), `-T`, `--remove-retained`, `-R`. A message that passes counts for `-C`, and is printed unless
`--random-filter` leaves it out.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from .console import DONE, TIMED_OUT, Console, new_console, run
from .flags import Flag, UsageError, Values, option, switch, whole_number
from .formatting import Format, compile_format, payload_only, topic_and_payload
from .options import BIND, SHARED, URL, parse_qos, target
from .received import Received
from .sessions import SESSION, session_of

if TYPE_CHECKING:
    from hbroker import Message
    from hbroker.sync import Client, Subscription

__all__ = ["main"]

_SYNOPSIS: Final = """\
hsub subscribes to topics and prints the messages that come.

usage: hsub [-h HOST] [-p PORT] -t FILTER ... [-q QOS] [-C COUNT] [-W SECONDS] [-v | -F FORMAT]
            [-N] [-R] [-T FILTER] [-i NAME -c [-x SECONDS]] ...
       hsub --help

-t '$share/GROUP/FILTER' shares: of all who subscribe so, one gets each message.

exit codes: 0 done, 1 failed or used wrongly, 27 the time of -W is over, 130 interrupted,
  143 terminated"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs hsub with the arguments of the command line (without its name). Returns the exit code."""
    return run("hsub", _SYNOPSIS, FLAGS, arguments, _subscribe)


def _subscribe(values: Values) -> int:
    filters = _filters(values)
    if RETAINED_ONLY in values and NO_RETAINED in values:
        raise UsageError("Combining '-R' and '--retained-only' makes no sense.")
    place, kept = target(values), session_of(values, clean=True)

    from hbroker import sync  # after the command line was checked: its errors come at once

    bind = values.last(BIND, "")
    with sync.connect(place, listen=(bind, 0) if bind else None, **kept) as client:
        console = new_console(values, client.client_id)
        seconds = values.last(TIMEOUT, 0)
        deadline = time.monotonic() + seconds if seconds else None
        qos = values.last(QOS, 0)
        as_published = AS_PUBLISHED in values
        for filter in filters:
            console.debug(f"sending SUBSCRIBE (Topic: {filter}, QoS: {qos})")
        # Not closed separately: at its end the client leaves its owners, once for all filters.
        messages = client.subscribe(*filters, qos=qos, retain_as_published=as_published)
        console.debug(f"received SUBACK (owners: {', '.join(messages.owners)})")
        if EXIT_SUBSCRIBED in values:
            return DONE
        return _Reader(values, client, console).read(messages, deadline)


def _filters(values: Values) -> tuple[str, ...]:
    url_topic = values.last(URL, ("", None, ""))[2]
    filters = values.all(TOPIC) + ((_filter(url_topic, "subscription"),) if url_topic else ())
    if not filters:
        raise UsageError("You must specify a topic to subscribe to.")
    return filters


class _Reader:
    """Reads messages, filters them, and prints them."""

    def __init__(self, values: Values, client: Client, console: Console) -> None:
        self._client = client
        self._console = console
        self._format = _format(values)
        self._end_of_line = b"" if NO_NEWLINE in values else b"\n"
        # As in mosquitto_sub: an empty payload is shown in a format, and with -v if lines have an end.
        self._shows_empty = FORMAT in values or (VERBOSE in values and NO_NEWLINE not in values)
        self._hidden = values.all(FILTER_OUT)
        self._limit = values.last(COUNT, 0)
        self._chance = values.last(RANDOM_FILTER, 100.0)
        self._retained_only = RETAINED_ONLY in values
        self._no_retained = NO_RETAINED in values
        self._removes = REMOVE_RETAINED in values
        self._received = 0
        self._taken = 0

    def read(self, messages: Subscription, deadline: float | None) -> int:
        """Reads messages until the end. Returns the exit code."""
        while True:
            message = messages.next(None if deadline is None else max(deadline - time.monotonic(), 0.0))
            if message is None:
                self._console.error("Timed out")
                return TIMED_OUT
            received = self._note(message)
            if self._retained_only and not received.is_retained:
                return DONE
            if self._wants(received):
                self._print(received)
                self._taken += 1
                if self._taken == self._limit:
                    return DONE

    def _note(self, message: Message) -> Received:
        is_retained = message.retain
        if message.qos:
            self._received = self._received % 65_535 + 1
        number = self._received if message.qos else 0
        self._console.debug(
            f"received PUBLISH (q{message.qos}, r{is_retained:d}, m{number}, "
            f"'{message.topic}', ... ({len(message.payload)} bytes))"
        )
        return Received(message, is_retained, number, time.time_ns())

    def _wants(self, received: Received) -> bool:
        from hbroker import topic_matches

        topic = received.message.topic
        if any(topic_matches(hidden, topic) for hidden in self._hidden):
            return False
        if self._removes and received.is_retained:
            self._client.publish(topic, b"", qos=1, retain=True)
        return not (received.is_retained and self._no_retained)

    def _print(self, received: Received) -> None:
        if not received.message.payload and not self._shows_empty:
            return
        if self._chance < 100.0 and random.random() * 100.0 >= self._chance:
            return
        try:
            text = self._format(received)
        except ValueError as error:  # %J of a payload that is not JSON
            self._console.error(f"Error: {error}")
            text = b""
        self._console.write(text + self._end_of_line)


def _format(values: Values) -> Format:
    if FORMAT in values:
        return compile_format(values.last(FORMAT, ""), pretty=PRETTY in values)
    return topic_and_payload if VERBOSE in values else payload_only


def _filter(text: str, kind: str) -> str:
    from hbroker import filter_is_valid

    if not filter_is_valid(text):
        raise UsageError(f"Invalid {kind} topic '{text}', are all '+' and '#' wildcards correct?")
    return text


def _count(text: str) -> int:
    count = whole_number(text)
    if count is None or count < 1:
        raise UsageError(f'Invalid message count "{text}".')
    return count


def _seconds(text: str) -> int:
    seconds = whole_number(text)
    if seconds is None or not 0 < seconds < 1_000_000_000:
        raise UsageError(f'Invalid timeout "{text}".')
    return seconds


def _chance(text: str) -> float:
    try:
        chance = float(text)
    except ValueError:
        chance = 0.0
    if not 0.1 <= chance <= 100.0:
        raise UsageError("--random-filter chance must be between 0.1-100.0")
    return chance


def _checked_format(text: str) -> str:
    compile_format(text)
    return text


TOPIC: Final = option(
    "-t",
    "--topic",
    argument="topic",
    shown="FILTER",
    parse=lambda text: _filter(text, "subscription"),
    help="a filter to subscribe to; may be given several times",
)
QOS: Final = option(
    "-q", "--qos", argument="QoS", parse=parse_qos, help="the highest to receive at: 0 (default), 1 or 2"
)
COUNT: Final = option("-C", argument="count", parse=_count, help="end after so many messages")
TIMEOUT: Final = option(
    "-W", argument="timeout", shown="SECONDS", parse=_seconds, help="end after so many seconds, with code 27"
)
EXIT_SUBSCRIBED: Final = switch("-E", help="end once every owner has the subscription")
VERBOSE: Final = switch("-v", "--verbose", help="print the topic before the payload")
FORMAT: Final = option(
    "-F", argument="format", parse=_checked_format, help="print in this format: docs/hpub-hsub.md"
)
PRETTY: Final = switch("--pretty", help="with %j and %J of -F: over several lines")
NO_NEWLINE: Final = switch("-N", help="print no end of line after a message")
NO_RETAINED: Final = switch("-R", help="do not print retained messages")
RETAINED_ONLY: Final = switch("--retained-only", help="end at the first message that is not a retained one")
REMOVE_RETAINED: Final = switch("--remove-retained", help="clear the retained messages that come")
AS_PUBLISHED: Final = switch("--retain-as-published", help="take the retain flag from the publisher")
FILTER_OUT: Final = option(
    "-T",
    "--filter-out",
    argument="topic filter",
    shown="FILTER",
    parse=lambda text: _filter(text, "filter"),
    help="do not print topics that match; may be given several times",
)
RANDOM_FILTER: Final = option(
    "--random-filter",
    argument="chance",
    shown="PERCENT",
    parse=_chance,
    help="print this percentage of messages, at random",
)

FLAGS: Final[tuple[Flag[Any], ...]] = (
    TOPIC,
    QOS,
    COUNT,
    TIMEOUT,
    EXIT_SUBSCRIBED,
    VERBOSE,
    FORMAT,
    PRETTY,
    NO_NEWLINE,
    NO_RETAINED,
    RETAINED_ONLY,
    REMOVE_RETAINED,
    AS_PUBLISHED,
    FILTER_OUT,
    RANDOM_FILTER,
    *SESSION,
    *SHARED,
)

if __name__ == "__main__":
    sys.exit(main())
