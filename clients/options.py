"""The flags that hpub and hsub share, and the address of the network's root.

The defaults are mosquitto's, except for the address: `HBROKER_ROOT`, or 127.0.0.1:7700. Flags that tune an
MQTT connection, and do no harm if they have no effect (`-k`, `-V`, `--nodelay`), are checked and ignored, so
that scripts work unchanged. Flags that a script relies on, and that have no meaning here, are refused.
"""

from __future__ import annotations

import os
from typing import Any, Final

from hbroker.runtime.address import parse_place

from .flags import Flag, UsageError, Values, option, switch, whole_number

__all__ = ["SHARED", "UNSUPPORTED", "Target", "client_id", "parse_qos", "target"]

Target = tuple[str, int]


def parse_qos(text: str) -> int:
    """0, 1 or 2. Raises UsageError."""
    if text not in ("0", "1", "2"):
        raise UsageError(f"Invalid QoS given: {text}")
    return int(text)


def target(values: Values) -> Target:
    """The address of the network's root: of the flags, or else of the environment. Raises UsageError."""
    try:
        if URL in values:
            host, port, _ = values.last(URL, ("", None, ""))
            host, default_port = parse_place(host)
        else:
            port = None
            host, default_port = parse_place(values.last(HOST, "") or None)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return host, values.last(PORT, port or default_port)


def client_id(values: Values) -> str | None:
    """The client id; None: the library chooses one. Raises UsageError."""
    if ID in values and ID_PREFIX in values:
        raise UsageError("-i and -I argument cannot be used together.")
    if ID_PREFIX in values:
        return f"{values.last(ID_PREFIX, '')}{os.getpid()}"
    return values.last(ID, "") or None


def _port(text: str) -> int:
    port = whole_number(text)
    if port is None or not 0 < port < 65_536:
        raise UsageError(f"Invalid port given: {text}")
    return port


def _host(text: str) -> str:
    if not text:
        raise UsageError("-h argument given but no host specified.")
    return text


def _id(text: str) -> str:
    if not text:
        raise UsageError("Invalid id.")
    return text


def _keep_alive(text: str) -> int:
    seconds = whole_number(text)
    if seconds is None or not 5 <= seconds <= 65_535:
        raise UsageError("Invalid keepalive given, it must be between 5 and 65535 inclusive.")
    return seconds


def _version(text: str) -> str:
    if text not in ("5", "311", "31", "mqttv5", "mqttv311", "mqttv31"):
        raise UsageError("Invalid protocol version argument given.")
    return text


def _url(text: str) -> tuple[str, int | None, str]:
    """Host, port and topic of a URL. Raises UsageError."""
    scheme, _, rest = text.partition("://")
    if scheme not in ("hbroker", "mqtt") or not rest:
        raise UsageError("unsupported URL scheme.")
    place, _, topic = rest.partition("/")
    if "@" in place:
        raise UsageError("a user name in the URL is not supported: the network does not ask for one.")
    if not topic:
        raise UsageError("Invalid URL for -L argument specified - topic missing.")
    host, _, port = place.rpartition(":") if place.count(":") == 1 else (place, "", "")
    return host or place, _port(port) if port else None, topic


HOST: Final = option(
    "-h",
    "--host",
    argument="host",
    parse=_host,
    help="the network's root (default: HBROKER_ROOT, or 127.0.0.1)",
)
PORT: Final = option("-p", "--port", argument="port", parse=_port, help="its UDP port (default: 7700)")
URL: Final = option(
    "-L",
    "--url",
    argument="URL",
    parse=_url,
    help="root and topic at once: hbroker://HOST[:PORT]/TOPIC, or mqtt://",
)
BIND: Final = option(
    "-A", argument="bind address", shown="ADDRESS", parse=_host, help="send from this address of this machine"
)
ID: Final = option("-i", "--id", argument="id", parse=_id, help="the name to go by (default: a random one)")
ID_PREFIX: Final = option(
    "-I",
    "--id-prefix",
    argument="id prefix",
    shown="PREFIX",
    parse=_id,
    help="the name to go by, followed by the process id",
)
DEBUG: Final = switch("-d", "--debug", help="print each packet that is sent or received")
QUIET: Final = switch("--quiet", help="print no errors but those of the command line")
HELP: Final = switch("--help", help="print this, and exit")
VERSION: Final = switch("--version", help="print the version, and exit")
KEEP_ALIVE: Final = option(
    "-k", "--keepalive", argument="keepalive", shown="SECONDS", parse=_keep_alive, help="checked and ignored"
)
PROTOCOL: Final = option(
    "-V",
    "--protocol-version",
    argument="version",
    parse=_version,
    named="--protocol-version",
    help="checked and ignored",
)
NO_DELAY: Final = switch("--nodelay", help="ignored")

SHARED: Final[tuple[Flag[Any], ...]] = (
    HOST,
    PORT,
    URL,
    BIND,
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
_TLS: Final = "links are not encrypted"
_SUBSCRIBING: Final = "a subscription carries no properties"
_UNSUBSCRIBING: Final = "a subscription ends with its session: see -c"

UNSUPPORTED: Final = {
    "-u": _USERS,
    "--username": _USERS,
    "-P": _USERS,
    "--pw": _USERS,
    **dict.fromkeys(
        ("--cafile", "--capath", "--cert", "--key", "--keyform", "--ciphers", "--insecure"), _TLS
    ),
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
