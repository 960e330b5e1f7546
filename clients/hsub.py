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

import click

from .console import DONE, TIMED_OUT, Console, Program
from .flags import Flag, Values, whole
from .formatting import Format, compile_format, payload_only, topic_and_payload
from .options import SHARED, URL, qos_flag
from .received import Received
from .sessions import SESSION, connection_of

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
    return Program("hsub", _SYNOPSIS, FLAGS, _subscribe).run(arguments)


def _subscribe(values: Values) -> int:
    filters = _filters(values)
    if values[RETAINED_ONLY] and values[NO_RETAINED]:
        raise click.UsageError("Combining '-R' and '--retained-only' makes no sense.")
    connection = connection_of(values, clean=True)

    from hbroker import sync  # after the command line was checked: its errors come at once

    with sync.connect(**connection) as client:
        console = Console(values, client.client_id)
        seconds, qos = values[TIMEOUT], values[QOS]
        deadline = None if seconds is None else time.monotonic() + seconds
        for filter in filters:
            console.debug(f"sending SUBSCRIBE (Topic: {filter}, QoS: {qos})")
        # Not closed separately: at its end the client leaves its owners, once for all filters.
        messages = client.subscribe(*filters, qos=qos, retain_as_published=values[AS_PUBLISHED])
        console.debug(f"received SUBACK (owners: {', '.join(messages.owners)})")
        if values[EXIT_SUBSCRIBED]:
            return DONE
        return _Reader(values, client, console).read(messages, deadline)


def _filters(values: Values) -> tuple[str, ...]:
    topic = values[URL].topic
    filters = (*values[TOPIC], TOPIC.check(topic)) if topic else values[TOPIC]
    if not filters:
        raise click.UsageError("You must specify a topic to subscribe to.")
    return filters


class _Reader:
    """Reads messages, filters them, and prints them."""

    def __init__(self, values: Values, client: Client, console: Console) -> None:
        self._values = values
        self._client = client
        self._console = console
        self._format = _format(values)
        self._end_of_line = b"" if values[NO_NEWLINE] else b"\n"
        # As in mosquitto_sub: an empty payload is shown in a format, and with -v if lines have an end.
        self._shows_empty = values[FORMAT] is not None or (values[VERBOSE] and not values[NO_NEWLINE])
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
            if self._values[RETAINED_ONLY] and not received.is_retained:
                return DONE
            if self._wants(received):
                self._print(received)
                self._taken += 1
                if self._taken == self._values[COUNT]:
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
        if any(topic_matches(hidden, topic) for hidden in self._values[FILTER_OUT]):
            return False
        if self._values[REMOVE_RETAINED] and received.is_retained:
            self._client.publish(topic, b"", qos=1, retain=True)
        return not (received.is_retained and self._values[NO_RETAINED])

    def _print(self, received: Received) -> None:
        if not received.message.payload and not self._shows_empty:
            return
        if random.random() * 100.0 >= self._values[RANDOM_FILTER]:
            return
        try:
            text = self._format(received)
        except ValueError as error:  # %J of a payload that is not JSON
            self._console.error(f"Error: {error}")
            text = b""
        self._console.write(text + self._end_of_line)


def _format(values: Values) -> Format:
    form = values[FORMAT]
    if form is not None:
        return compile_format(form, pretty=values[PRETTY])
    return topic_and_payload if values[VERBOSE] else payload_only


def _filter(text: str) -> str:
    from hbroker import filter_is_valid

    if not filter_is_valid(text):
        raise ValueError(text)
    return text


def _chance(text: str) -> float:
    chance = float(text)
    if not 0.1 <= chance <= 100.0:
        raise ValueError(text)
    return chance


def _checked_format(text: str) -> str:
    compile_format(text)
    return text


TOPIC: Final = Flag[tuple[str, ...]](
    "-t",
    "--topic",
    argument="topic",
    metavar="FILTER",
    type=_filter,
    multiple=True,
    default=(),
    refusal="Invalid subscription topic '{}', are all '+' and '#' wildcards correct?",
    help="a filter to subscribe to; may be given several times",
)
QOS: Final = qos_flag("-q", "--qos", help="the highest to receive at: 0 (default), 1 or 2")
COUNT: Final = Flag[int | None](
    "-C",
    argument="count",
    type=whole(1),
    refusal='Invalid message count "{}".',
    help="end after so many messages",
)
TIMEOUT: Final = Flag[int | None](
    "-W",
    argument="timeout",
    metavar="SECONDS",
    type=whole(1, 999_999_999),
    refusal='Invalid timeout "{}".',
    help="end after so many seconds, with code 27",
)
EXIT_SUBSCRIBED: Final = Flag[bool]("-E", help="end once every owner has the subscription")
VERBOSE: Final = Flag[bool]("-v", "--verbose", help="print the topic before the payload")
FORMAT: Final = Flag[str | None](
    "-F", argument="format", type=_checked_format, help="print in this format: docs/hpub-hsub.md"
)
PRETTY: Final = Flag[bool]("--pretty", help="with %j and %J of -F: over several lines")
NO_NEWLINE: Final = Flag[bool]("-N", help="print no end of line after a message")
NO_RETAINED: Final = Flag[bool]("-R", help="do not print retained messages")
RETAINED_ONLY: Final = Flag[bool](
    "--retained-only", help="end at the first message that is not a retained one"
)
REMOVE_RETAINED: Final = Flag[bool]("--remove-retained", help="clear the retained messages that come")
AS_PUBLISHED: Final = Flag[bool]("--retain-as-published", help="take the retain flag from the publisher")
FILTER_OUT: Final = Flag[tuple[str, ...]](
    "-T",
    "--filter-out",
    argument="topic filter",
    metavar="FILTER",
    type=_filter,
    multiple=True,
    default=(),
    refusal="Invalid filter topic '{}', are all '+' and '#' wildcards correct?",
    help="do not print topics that match; may be given several times",
)
RANDOM_FILTER: Final = Flag[float](
    "--random-filter",
    argument="chance",
    metavar="PERCENT",
    type=_chance,
    default=100.0,
    refusal="--random-filter chance must be between 0.1-100.0",
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
