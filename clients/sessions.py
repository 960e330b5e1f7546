"""`-c`, `-x` and the will: what outlives a run, with mosquitto's flags.

Without `-c` and `-x`, a run of hsub with a name ends the session of an earlier run with that name, as a clean
session does: a script ends a session with `hsub -i NAME -t anything -E`. A run without a name leaves no
session.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import click

from .flags import Flag, Values, encode_text, literal_topic, whole
from .options import AUTHORITY, BIND, ID, TOKEN, client_id, qos_flag, target, workspace

if TYPE_CHECKING:
    from hbroker import Will

__all__ = ["SESSION", "connection_of"]

_MOST_SECONDS: Final = 0xFFFF_FFFF
_NO_ID: Final = "You must provide a client id if you are using "


def connection_of(values: Values, *, clean: bool) -> dict[str, Any]:
    """The arguments of `hbroker.sync.connect` for the flags. Raises UsageError.

    `clean`: without `-c`, an earlier session of the same name ends.
    """
    root = target(values)
    keeps, has_name, expiry = values[KEEP], values[ID] is not None, values[EXPIRY]
    if keeps and not has_name:
        raise click.UsageError(f"{_NO_ID}the -c option.")
    if expiry is None:
        expiry = math.inf if keeps else 0.0
    if expiry == math.inf and not has_name:
        raise click.UsageError(f"{_NO_ID}an infinite session expiry interval.")
    return {
        "root": root,
        "listen": (values[BIND], 0) if values[BIND] else None,
        "authority": values[AUTHORITY],
        "token": values[TOKEN],
        "workspace": workspace(values),
        "client_id": client_id(values),
        "session_expiry": expiry if has_name else 0.0,
        "clean_start": clean and has_name and not keeps,
        "will": _will(values),
        # A message that was not printed when the program was killed comes to the next run.
        "acknowledge": "handled" if keeps else "received",
    }


def _will(values: Values) -> Will | None:
    topic, payload = values[WILL_TOPIC], values[WILL_PAYLOAD]
    if topic is None:
        for is_given, name in ((payload is not None, "payload"), (values[WILL_RETAIN], "retain")):
            if is_given:
                raise click.UsageError(f"Will {name} given, but no will topic given.")
        return None

    from hbroker import HBrokerError, Will  # after the other flags were checked: it takes time

    try:
        return Will(topic, encode_text(payload or ""), qos=values[WILL_QOS], retain=values[WILL_RETAIN])
    except HBrokerError as error:
        raise click.UsageError(str(error)) from None


def _seconds(text: str) -> float:
    if text == "∞":
        return math.inf
    seconds = whole()(text)
    if not -1 <= seconds <= _MOST_SECONDS:
        raise click.UsageError("session-expiry-interval out of range.")
    return math.inf if seconds in (-1, _MOST_SECONDS) else float(seconds)


KEEP: Final = Flag[bool](
    "-c",
    "--disable-clean-session",
    help="keep the subscriptions, and what comes for them, for -i's next run",
)
EXPIRY: Final = Flag[float | None](
    "-x",
    argument="session expiry interval",
    metavar="SECONDS",
    type=_seconds,
    refusal="session-expiry-interval not a number.",
    help="for so long (default with -c: as long as each node allows)",
)
WILL_TOPIC: Final = Flag[str | None](
    "--will-topic",
    argument="will topic",
    metavar="TOPIC",
    type=literal_topic,
    refusal="Invalid will topic '{}', does it contain '+' or '#'?",
    help="publish a message there if this program breaks off",
)
WILL_PAYLOAD: Final = Flag[str | None](
    "--will-payload", argument="will payload", metavar="TEXT", type=str, help="that message (default: empty)"
)
WILL_QOS: Final = qos_flag(
    "--will-qos", argument="will QoS", refusal="Invalid will QoS {}.", help="its QoS: 0 (default), 1 or 2"
)
WILL_RETAIN: Final = Flag[bool]("--will-retain", help="keep it for those who subscribe later")

SESSION: Final[tuple[Flag[Any], ...]] = (KEEP, EXPIRY, WILL_TOPIC, WILL_PAYLOAD, WILL_QOS, WILL_RETAIN)
