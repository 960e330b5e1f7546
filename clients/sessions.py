"""`-c`, `-x` and the will: what outlives a run, with mosquitto's flags.

Without `-c` and `-x`, a run of hsub with a name ends the session of an earlier run with that name, as a clean
session does: a script ends a session with `hsub -i NAME -t anything -E`. A run without a name leaves no
session.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from .flags import Flag, UsageError, Values, option, switch, whole_number
from .options import ID, client_id, parse_qos

if TYPE_CHECKING:
    from hbroker import Will

__all__ = ["SESSION", "session_of"]

_MOST_SECONDS: Final = 0xFFFF_FFFF
_NO_ID: Final = "You must provide a client id if you are using "


def session_of(values: Values, *, clean: bool) -> dict[str, Any]:
    """The arguments of `hbroker.sync.connect` for the flags. Raises UsageError.

    `clean`: without `-c`, an earlier session of the same name ends.
    """
    keeps = KEEP in values
    if keeps and ID not in values:
        raise UsageError(f"{_NO_ID}the -c option.")
    expiry = values.last(EXPIRY, math.inf if keeps else 0.0)
    if expiry == math.inf and ID not in values:
        raise UsageError(f"{_NO_ID}an infinite session expiry interval.")
    has_name = ID in values
    return {
        "client_id": client_id(values),
        "session_expiry": expiry if has_name else 0.0,
        "clean_start": clean and has_name and not keeps,
        "will": _will(values),
        # A message that was not printed when the program was killed comes to the next run.
        "acknowledge": "handled" if keeps else "received",
    }


def _will(values: Values) -> Will | None:
    if WILL_TOPIC not in values:
        for flag, name in ((WILL_PAYLOAD, "payload"), (WILL_RETAIN, "retain")):
            if flag in values:
                raise UsageError(f"Will {name} given, but no will topic given.")
        return None

    from hbroker import HBrokerError, Will  # after the other flags were checked: it takes time

    try:
        return Will(
            values.last(WILL_TOPIC, ""),
            values.last(WILL_PAYLOAD, "").encode("utf-8", "surrogateescape"),
            qos=values.last(WILL_QOS, 0),
            retain=WILL_RETAIN in values,
        )
    except HBrokerError as error:
        raise UsageError(str(error)) from None


def _seconds(text: str) -> float:
    if text == "∞":
        return math.inf
    seconds = whole_number(text)
    if seconds is None:
        raise UsageError("session-expiry-interval not a number.")
    if not -1 <= seconds <= _MOST_SECONDS:
        raise UsageError("session-expiry-interval out of range.")
    return math.inf if seconds in (-1, _MOST_SECONDS) else float(seconds)


def _will_topic(text: str) -> str:
    if "+" in text or "#" in text:
        raise UsageError(f"Invalid will topic '{text}', does it contain '+' or '#'?")
    return text


def _will_qos(text: str) -> int:
    try:
        return parse_qos(text)
    except UsageError:
        raise UsageError(f"Invalid will QoS {text}.") from None


KEEP: Final = switch(
    "-c",
    "--disable-clean-session",
    help="keep the subscriptions, and what comes for them, for -i's next run",
)
EXPIRY: Final = option(
    "-x",
    argument="session expiry interval",
    shown="SECONDS",
    parse=_seconds,
    help="for so long (default with -c: as long as each node allows)",
)
WILL_TOPIC: Final = option(
    "--will-topic",
    argument="will topic",
    shown="TOPIC",
    parse=_will_topic,
    help="publish a message there if this program breaks off",
)
WILL_PAYLOAD: Final = option(
    "--will-payload", argument="will payload", shown="TEXT", parse=str, help="that message (default: empty)"
)
WILL_QOS: Final = option(
    "--will-qos", argument="will QoS", shown="QOS", parse=_will_qos, help="its QoS: 0 (default), 1 or 2"
)
WILL_RETAIN: Final = switch("--will-retain", help="keep it for those who subscribe later")

SESSION: Final[tuple[Flag[Any], ...]] = (KEEP, EXPIRY, WILL_TOPIC, WILL_PAYLOAD, WILL_QOS, WILL_RETAIN)
