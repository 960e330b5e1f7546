"""Reads mosquitto.conf and the files that it includes: the lines, and the section that each belongs to.

A line is `option value`. `listener` and `connection` begin a section, which goes on to the next of its kind,
or to the end of the file. Options of a listener before the first section belong to the default listener, and
all other options to the broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hbroker.errors import ConfigError
from hbroker.topology.document import read_text

__all__ = [
    "CONNECTION_OPTIONS",
    "LISTENER_OPTIONS",
    "PER_LISTENER_OPTIONS",
    "Configuration",
    "Line",
    "Section",
    "read",
]

MAX_FILES: Final = 1_000

LISTENER_OPTIONS: Final = frozenset(
    {
        *("listener", "port", "bind_address", "bind_interface", "socket_domain", "protocol", "mount_point"),
        *("max_connections", "max_qos", "max_topic_alias", "max_topic_alias_broker", "http_dir"),
        *("cafile", "capath", "certfile", "keyfile", "crlfile", "require_certificate", "tls_version"),
        *("ciphers", "ciphers_tls1.3", "dhparamfile", "tls_engine", "tls_keyform", "tls_engine_kpass_sha1"),
        *("use_identity_as_username", "use_subject_as_username", "use_username_as_clientid", "psk_hint"),
        *("websockets_log_level", "websockets_headers_size", "websockets_origin", "accept_protocol_versions"),
        *("enable_proxy_protocol", "proxy_protocol_v2_require_tls", "disable_client_cert_date_checks"),
        *("listener_allow_anonymous", "listener_auto_id_prefix"),
    }
)
"""The options of one listener."""

PER_LISTENER_OPTIONS: Final = frozenset(
    {
        *("password_file", "acl_file", "allow_anonymous", "psk_file", "allow_zero_length_clientid"),
        *("auto_id_prefix", "auth_plugin", "plugin", "auth_plugin_deny_special_chars"),
    }
)
"""The options that belong to a listener, too, if `per_listener_settings` is true."""

CONNECTION_OPTIONS: Final = frozenset(
    {
        *("connection", "address", "addresses", "topic", "cleansession", "local_cleansession", "clientid"),
        *("remote_clientid", "local_clientid", "username", "remote_username", "password", "remote_password"),
        *("local_username", "local_password", "keepalive_interval", "idle_timeout", "notifications"),
        *("notifications_local_only", "notification_topic", "restart_timeout", "round_robin", "start_type"),
        *("threshold", "try_private"),
    }
)
"""The options of one bridge, besides those that begin with `bridge_`."""


@dataclass(frozen=True, slots=True)
class Line:
    """One option with its value, which may be empty. `number`: from 1."""

    option: str
    value: str
    file: str
    number: int

    @property
    def place(self) -> str:
        """The file and the line, for messages."""
        return f"{self.file}:{self.number}"

    def truth(self) -> bool:
        """The truth value. Raises ConfigError if it is none."""
        known = {"true": True, "1": True, "false": False, "0": False}
        if self.value.lower() not in known:
            raise self.error(f"{self.option} is {self.value[:40]!r}, not a truth value", "true or false")
        return known[self.value.lower()]

    def whole(self, low: int = 0) -> int:
        """The whole number, at least `low`. Raises ConfigError if it is none."""
        digits = self.value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 18) or int(self.value) < low:
            shown = f"{self.option} is {self.value[:40]!r}, not a whole number from {low} on"
            raise self.error(shown, "a number")
        return int(self.value)

    def error(self, message: str, wanted: str) -> ConfigError:
        """The error of this line."""
        return ConfigError(message, file=self.file, line=self.number, remedy=f"write {wanted}")


@dataclass(slots=True)
class Section:
    """The lines of the broker, of one listener or of one bridge."""

    lines: list[Line] = field(default_factory=list)

    def last(self, *options: str) -> Line | None:
        """The last line with one of these options, which counts; None: there is none."""
        return next((line for line in reversed(self.lines) if line.option in options), None)

    def value(self, *options: str) -> str:
        """The value of the last line with one of these options; empty: there is none."""
        line = self.last(*options)
        return "" if line is None else line.value

    def is_true(self, option: str, default: bool = False) -> bool:
        """Whether the last line with this option says so. Raises ConfigError."""
        line = self.last(option)
        return default if line is None else line.truth()


@dataclass(slots=True)
class Configuration:
    """All files. `default`: the default listener, which is there if one of its lines is `port` or
    `bind_address`. `listeners`, `connections`: each begins with the line that named it."""

    general: Section = field(default_factory=Section)
    default: Section = field(default_factory=Section)
    listeners: list[Section] = field(default_factory=list)
    connections: list[Section] = field(default_factory=list)

    @property
    def is_per_listener(self) -> bool:
        """Whether each listener has its own users and rules. Raises ConfigError."""
        return self.general.is_true("per_listener_settings")

    @property
    def is_local_only(self) -> bool:
        """Whether no listener is configured: mosquitto then listens on loopback addresses alone."""
        return not self.listeners and self.default.last("port", "bind_address") is None

    def sections(self) -> tuple[Section, ...]:
        """All sections."""
        return self.general, self.default, *self.listeners, *self.connections


def read(path: Path) -> Configuration:
    """Reads a configuration. Raises ConfigError and ConfigErrors if a file cannot be read."""
    configuration = Configuration()
    per_listener = any(
        line.option == "per_listener_settings" and line.value.lower() in ("true", "1")
        for line in _lines(path, [])
    )
    owned = LISTENER_OPTIONS | PER_LISTENER_OPTIONS if per_listener else LISTENER_OPTIONS
    listener_of: dict[str, Section] = {}
    connection_of: dict[str, Section] = {}
    for line in _lines(path, []):
        if line.option == "listener":
            listener_of[line.file] = Section()
            configuration.listeners.append(listener_of[line.file])
        elif line.option == "connection":
            connection_of[line.file] = Section()
            configuration.connections.append(connection_of[line.file])
        of_bridge = line.option in CONNECTION_OPTIONS or line.option.startswith("bridge_")
        of_plugin = per_listener and line.option.startswith(("auth_opt_", "plugin_opt_"))
        if of_bridge and line.file in connection_of:
            connection_of[line.file].lines.append(line)
        elif line.option in owned or of_plugin:
            listener_of.get(line.file, configuration.default).lines.append(line)
        else:
            configuration.general.lines.append(line)
    return configuration


def _lines(path: Path, read_before: list[Path]) -> Iterator[Line]:
    """The lines of a file, with those of the files that it includes at their place."""
    read_before.append(path)
    if len(read_before) > MAX_FILES:
        remedy = "import a configuration of fewer files"
        raise ConfigError(f"it includes over {MAX_FILES} files", file=str(read_before[0]), remedy=remedy)
    for number, text in enumerate(read_text(path).splitlines(), 1):
        option, _, value = text.strip().partition(" ")
        if not option or option.startswith("#"):
            continue
        line = Line(option, value.strip(), str(path), number)
        yield line
        for included in _included(line) if option == "include_dir" else ():
            if included in read_before:
                raise line.error(f"{included} would be included twice", "each directory once")
            yield from _lines(included, read_before)


def _included(line: Line) -> list[Path]:
    """The files of a directory, in mosquitto's order: of each letter, the upper case before the lower."""
    directory = Path(line.value)
    if not line.value:
        raise line.error("include_dir names nothing", "a directory, or remove the line")
    try:
        names = [path.name for path in directory.iterdir() if path.name.endswith(".conf")]
    except OSError as error:
        reason = f"cannot read {directory}: {error.strerror}"
        raise line.error(reason, "a directory that is there, or remove the line") from None
    return [directory / name for name in sorted(names, key=lambda name: (name.lower(), name))]
