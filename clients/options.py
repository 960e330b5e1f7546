"""The flags that hpub and hsub share, and the address of the network's root.

The defaults are mosquitto's, except for the address: `HBROKER_ROOT`, or 127.0.0.1:7700. Flags that tune an
MQTT connection, and do no harm if they have no effect (`-k`, `-V`, `--nodelay`), are checked and ignored, so
that scripts work unchanged. Flags that a script relies on, and that have no meaning here, are refused.
"""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple

import click

from hbroker.workspace import name_is_valid

from .flags import Flag, Values, whole

__all__ = ["SHARED", "UNSUPPORTED", "Url", "client_id", "qos_flag", "target", "workspace"]


class Url(NamedTuple):
    """The argument of `-L`. Without `-L` the host and the topic are empty."""

    host: str
    port: int | None
    topic: str


def qos_flag(
    *names: str, argument: str = "QoS", refusal: str = "Invalid QoS given: {}", help: str
) -> Flag[int]:
    """A flag with a QoS, by default 0."""
    levels = click.Choice((0, 1, 2))
    return Flag(*names, argument=argument, metavar="QOS", type=levels, default=0, refusal=refusal, help=help)


def target(values: Values) -> tuple[str, int]:
    """The address of the network's root: of the flags, or else of the environment. Raises UsageError."""
    from hbroker.runtime.address import parse_place  # after the flags were checked: it takes time

    host, port, topic = values[URL]
    try:
        host, default_port = parse_place(host if topic else values[HOST])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return host, values[PORT] or port or default_port


def client_id(values: Values) -> str | None:
    """The client id; None: the library chooses one. Raises UsageError."""
    if values[ID] and values[ID_PREFIX]:
        raise click.UsageError("-i and -I argument cannot be used together.")
    if values[ID_PREFIX]:
        return f"{values[ID_PREFIX]}{os.getpid()}"
    return values[ID]


def workspace(values: Values) -> str | None:
    """The workspace: of the flag, or else of the environment, or of the context; None: that of the token.

    Raises UsageError, and ConfigError and ConfigErrors as `contexts.load`.
    """
    from hbroker.runtime import contexts  # after the flags were checked: it takes time

    named = values[WORKSPACE]
    if named is None and (of_environment := os.environ.get("HBROKER_WORKSPACE")):
        named = WORKSPACE.check(of_environment)
    if named is None and (context := contexts.chosen_for(target(values))):
        named = context.workspace or None
    return named


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


def _workspace(text: str) -> str:
    if not name_is_valid(text):
        raise ValueError(text)
    return text


def _url(text: str) -> Url:
    scheme, _, rest = text.partition("://")
    if scheme not in ("hbroker", "mqtt") or not rest:
        raise click.UsageError("unsupported URL scheme.")
    place, _, topic = rest.partition("/")
    if "@" in place:
        raise click.UsageError("a user name in the URL is not supported: the network does not ask for one.")
    if not topic:
        raise click.UsageError("Invalid URL for -L argument specified - topic missing.")
    host, _, port = place.rpartition(":") if place.count(":") == 1 else (place, "", "")
    return Url(host or place, PORT.check(port) if port else None, topic)


HOST: Final = Flag[str | None](
    "-h",
    "--host",
    argument="host",
    type=_not_empty,
    refusal="-h argument given but no host specified.",
    help="the network's root (default: HBROKER_ROOT, the context's, or 127.0.0.1)",
)
PORT: Final = Flag[int | None](
    "-p",
    "--port",
    argument="port",
    type=whole(1, 65_535),
    refusal="Invalid port given: {}",
    help="its UDP port (default: 7700)",
)
URL: Final = Flag[Url](
    "-L",
    "--url",
    argument="URL",
    type=_url,
    default=Url("", None, ""),
    help="root and topic at once: hbroker://HOST[:PORT]/TOPIC, or mqtt://",
)
BIND: Final = Flag[str | None](
    "-A",
    argument="bind address",
    metavar="ADDRESS",
    type=_not_empty,
    refusal="-h argument given but no host specified.",
    help="send from this address of this machine",
)
AUTHORITY: Final = Flag[str | None](
    "--cafile",
    argument="authority",
    metavar="FILE",
    type=_not_empty,
    refusal="--cafile argument given but no file specified.",
    help="the certificate of the network's authority (default: HBROKER_AUTHORITY, the context's, or "
    "this host's)",
)
TOKEN: Final = Flag[str | None](
    "--token",
    argument="token",
    metavar="FILE",
    type=_not_empty,
    refusal="--token argument given but no file specified.",
    help="the file with the token to show (default: HBROKER_TOKEN, the context's, or this host's)",
)
CONTEXT: Final = Flag[str | None](
    "--context",
    argument="context",
    metavar="NAME",
    type=_not_empty,
    refusal="--context argument given but no context specified.",
    help="how to reach the network (default: HBROKER_CONTEXT, or as `hbroker context use` says)",
)
WORKSPACE: Final = Flag[str | None](
    "--workspace",
    argument="workspace",
    metavar="NAME",
    type=_workspace,
    refusal="Invalid workspace name given: {}",
    help="topics are those of this workspace (default: HBROKER_WORKSPACE, the context's, or the token's)",
)
ID: Final = Flag[str | None](
    "-i",
    "--id",
    argument="id",
    type=_not_empty,
    refusal="Invalid id.",
    help="the name to go by (default: a random one)",
)
ID_PREFIX: Final = Flag[str | None](
    "-I",
    "--id-prefix",
    argument="id prefix",
    metavar="PREFIX",
    type=_not_empty,
    refusal="Invalid id.",
    help="the name to go by, followed by the process id",
)
DEBUG: Final = Flag[bool]("-d", "--debug", help="print each packet that is sent or received")
QUIET: Final = Flag[bool]("--quiet", help="print no errors but those of the command line")
HELP: Final = Flag[bool]("--help", help="print this, and exit")
VERSION: Final = Flag[bool]("--version", help="print the version, and exit")
KEEP_ALIVE: Final = Flag[int | None](
    "-k",
    "--keepalive",
    argument="keepalive",
    metavar="SECONDS",
    type=whole(5, 65_535),
    refusal="Invalid keepalive given, it must be between 5 and 65535 inclusive.",
    help="checked and ignored",
)
PROTOCOL: Final = Flag[str | None](
    "-V",
    "--protocol-version",
    argument="version",
    type=click.Choice(("5", "311", "31", "mqttv5", "mqttv311", "mqttv31")),
    refusal="Invalid protocol version argument given.",
    named="--protocol-version",
    help="checked and ignored",
)
NO_DELAY: Final = Flag[bool]("--nodelay", help="ignored")

SHARED: Final[tuple[Flag[Any], ...]] = (
    HOST,
    PORT,
    URL,
    BIND,
    AUTHORITY,
    TOKEN,
    CONTEXT,
    WORKSPACE,
    ID,
    ID_PREFIX,
    DEBUG,
    QUIET,
    HELP,
    VERSION,
    KEEP_ALIVE,
    PROTOCOL,
    NO_DELAY,
)

_USERS: Final = "the network does not ask for a user name"
_TLS: Final = "datagrams are sealed with keys of their own: see --cafile"
_SUBSCRIBING: Final = "a subscription carries no properties"
_UNSUBSCRIBING: Final = "a subscription ends with its session: see -c"

UNSUPPORTED: Final = {
    "-u": _USERS,
    "--username": _USERS,
    "-P": _USERS,
    "--pw": _USERS,
    **dict.fromkeys(("--capath", "--cert", "--key", "--keyform", "--ciphers", "--insecure"), _TLS),
    **dict.fromkeys(("--tls-version", "--tls-alpn", "--tls-engine", "--tls-engine-kpass-sha1"), _TLS),
    **dict.fromkeys(("--tls-use-os-certs", "--psk", "--psk-identity"), _TLS),
    "--proxy": "datagrams pass no SOCKS proxy",
    "--unix": "nodes listen on UDP alone",
    "-S": "there is no SRV record for hbroker",
    "-D": _SUBSCRIBING,
    "--property": _SUBSCRIBING,
    "-U": _UNSUBSCRIBING,
    "--unsubscribe": _UNSUBSCRIBING,
}
