"""hpub: publishes, with the flags of mosquitto_pub.

When hpub ends, a message of QoS 0 has been sent. A message of QoS 1 or 2 has been distributed: its owner has
acknowledged that (docs/protocol.md §7.3).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from .console import DONE, FAILED, Console, new_console, run
from .flags import Flag, UsageError, Values, option, switch, whole_number
from .options import BIND, SHARED, URL, parse_qos, target
from .payloads import SOURCES, open_payloads
from .properties import PROPERTY, publish_properties
from .sessions import SESSION, session_of

if TYPE_CHECKING:
    from hbroker.sync import Client

__all__ = ["main"]

_SYNOPSIS: Final = """\
hpub publishes messages on a topic.

usage: hpub [-h HOST] [-p PORT] -t TOPIC {-m MESSAGE | -f FILE | -s | -l | -n} [-q QOS] [-r]
            [--repeat COUNT [--repeat-delay SECONDS]] ...
       hpub --help

exit codes: 0 published (QoS 0: sent; QoS 1, 2: distributed), 1 failed or used wrongly,
  130 interrupted, 143 terminated"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs hpub with the arguments of the command line (without its name). Returns the exit code."""
    return run("hpub", _SYNOPSIS, FLAGS, arguments, _publish_all)


def _publish_all(values: Values) -> int:
    url_topic = values.last(URL, ("", None, ""))[2]
    topic = values.last(TOPIC, url_topic)
    if not topic:
        raise UsageError("Both topic and message must be supplied.")
    place, kept = target(values), session_of(values, clean=False)
    properties = publish_properties(values.all(PROPERTY))
    payloads, is_single = open_payloads(values)
    repeat = values.last(REPEAT, 1) if is_single else 1
    pause = values.last(REPEAT_DELAY, 0.0)

    from hbroker import sync  # after the command line was checked: its errors come at once

    bind = values.last(BIND, "")
    with sync.connect(place, listen=(bind, 0) if bind else None, **kept) as client:
        console = new_console(values, client.client_id)
        publication = _Publication(client, console, topic, values.last(QOS, 0), RETAIN in values, properties)
        for payload in payloads:
            for round in range(repeat):
                if round and pause:
                    time.sleep(pause)
                publication.send(payload)
        if not client.drain():
            console.error("Error: not everything could be sent.")
            return FAILED
    return DONE


class _Publication:
    """The messages of one run: they differ only in the payload."""

    def __init__(
        self, client: Client, console: Console, topic: str, qos: int, retain: bool, properties: dict[str, Any]
    ) -> None:
        self._client = client
        self._console = console
        self._topic = topic
        self._qos = qos
        self._retain = retain
        self._properties = properties

    def send(self, payload: bytes) -> None:
        """Publishes one message. Raises HBrokerError."""
        self._console.debug(
            f"sending PUBLISH (q{self._qos}, r{self._retain:d}, '{self._topic}', ... ({len(payload)} bytes))"
        )
        receipt = self._client.publish(
            self._topic, payload, qos=self._qos, retain=self._retain, **self._properties
        )
        if receipt.reason is not None:
            self._console.debug(f"received PUBACK (m{receipt.sequence}, rc{receipt.reason})")


def _topic(text: str) -> str:
    if "+" in text or "#" in text:
        raise UsageError(f"Invalid publish topic '{text}', does it contain '+' or '#'?")
    return text


def _count(text: str) -> int:
    count = whole_number(text)
    if count is None or count < 1:
        raise UsageError("--repeat argument must be >0.")
    return count


def _pause(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < 1e9:
        raise UsageError("--repeat-delay argument must be >=0.0.")
    return seconds


TOPIC: Final = option("-t", "--topic", argument="topic", parse=_topic, help="the topic to publish on")
QOS: Final = option("-q", "--qos", argument="QoS", parse=parse_qos, help="0 (default), 1 or 2")
RETAIN: Final = switch("-r", "--retain", help="keep the message for those who subscribe later")
REPEAT: Final = option(
    "--repeat", argument="count", parse=_count, help="with -m, -f, -s, -n: publish so many times"
)
REPEAT_DELAY: Final = option(
    "--repeat-delay", argument="time", shown="SECONDS", parse=_pause, help="seconds between them (default: 0)"
)
INFLIGHT: Final = option(
    "-M", argument="max inflight", shown="COUNT", parse=str, help="ignored: the link sees to it"
)

FLAGS: Final[tuple[Flag[Any], ...]] = (
    TOPIC,
    *SOURCES,
    QOS,
    RETAIN,
    REPEAT,
    REPEAT_DELAY,
    PROPERTY,
    *SESSION,
    *SHARED,
    INFLIGHT,
)

if __name__ == "__main__":
    sys.exit(main())
