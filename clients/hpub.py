"""hpub: publishes, with the flags of mosquitto_pub.

When hpub ends, a message of QoS 0 has been sent. A message of QoS 1 or 2 has been distributed: its owner has
acknowledged that (docs/protocol.md §7.3).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import click

from .console import DONE, FAILED, Console, Program
from .flags import Flag, Values, literal_topic, whole
from .options import SHARED, URL, qos_flag
from .payloads import SOURCES, open_payloads
from .properties import PROPERTY, publish_properties
from .sessions import SESSION, connection_of

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
    return Program("hpub", _SYNOPSIS, FLAGS, _publish_all).run(arguments)


def _publish_all(values: Values) -> int:
    topic = values[URL].topic if values[TOPIC] is None else values[TOPIC]
    if not topic:
        raise click.UsageError("Both topic and message must be supplied.")
    connection = connection_of(values, clean=False)
    properties = publish_properties(values[PROPERTY])
    payloads, is_single = open_payloads(values)
    repeat = values[REPEAT] if is_single else 1
    pause, qos, retain = values[REPEAT_DELAY], values[QOS], values[RETAIN]

    from hbroker import sync  # after the command line was checked: its errors come at once

    with sync.connect(**connection) as client:
        console = Console(values, client.client_id)
        for payload in payloads:
            for round in range(repeat):
                if round and pause:
                    time.sleep(pause)
                console.debug(f"sending PUBLISH (q{qos}, r{retain:d}, '{topic}', ... ({len(payload)} bytes))")
                receipt = client.publish(topic, payload, qos=qos, retain=retain, **properties)
                if receipt.reason is not None:
                    console.debug(f"received PUBACK (m{receipt.sequence}, rc{receipt.reason})")
        if not client.drain():
            console.error("Error: not everything could be sent.")
            return FAILED
    return DONE


def _pause(text: str) -> float:
    seconds = float(text)
    if not 0.0 <= seconds < 1e9:
        raise ValueError(text)
    return seconds


TOPIC: Final = Flag[str | None](
    "-t",
    "--topic",
    argument="topic",
    type=literal_topic,
    refusal="Invalid publish topic '{}', does it contain '+' or '#'?",
    help="the topic to publish on",
)
QOS: Final = qos_flag("-q", "--qos", help="0 (default), 1 or 2")
RETAIN: Final = Flag[bool]("-r", "--retain", help="keep the message for those who subscribe later")
REPEAT: Final = Flag[int](
    "--repeat",
    argument="count",
    type=whole(1),
    default=1,
    refusal="--repeat argument must be >0.",
    help="with -m, -f, -s, -n: publish so many times",
)
REPEAT_DELAY: Final = Flag[float](
    "--repeat-delay",
    argument="time",
    metavar="SECONDS",
    type=_pause,
    default=0.0,
    refusal="--repeat-delay argument must be >=0.0.",
    help="seconds between them (default: 0)",
)
INFLIGHT: Final = Flag[str | None](
    "-M", argument="max inflight", metavar="COUNT", type=str, help="ignored: the link sees to it"
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
