"""Makes a topology file of a configuration of mosquitto: one node, which owns all topics, one gateway, and
the bridges.

The users and rules of a network are the same at all its gateways. With `per_listener_settings` mosquitto may
have others at each listener. Then only the listeners with the settings of the first one are converted, so
that nobody gets in who could not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from hbroker.mosquitto import access
from hbroker.mosquitto.bridges import bridge
from hbroker.mosquitto.conf_file import Configuration, Section
from hbroker.mosquitto.listeners import default_listener, listener, local_listener
from hbroker.mosquitto.options import report_others
from hbroker.mosquitto.outcome import Report

__all__ = ["Conversion", "convert"]

_DAYS: Final = {"h": 1 / 24, "d": 1, "w": 7, "m": 30, "y": 365}
_SECURITY: Final = ("password_file", "acl_file", "allow_anonymous", "psk_file", "plugin", "auth_plugin")


@dataclass(frozen=True, slots=True)
class Conversion:
    """The files to write, by name, each with its text, and what became of each line. `topology`: the name of
    the topology file. The other files hold secrets."""

    topology: str
    files: Mapping[str, str]
    report: Report


def convert(configuration: Configuration, name: str, *, has_ipv6: bool) -> Conversion:
    """Converts a configuration. `name`: of the network. `has_ipv6`: listeners that name no address get one
    that takes clients of both families.

    Raises ConfigError and ConfigErrors if a line or a file is wrong, with which mosquitto does not start.
    """
    report = Report()
    files: dict[str, str] = {}
    listeners, security = _listeners(configuration, report, has_ipv6)
    auth = _auth(security, files, report, is_local_only=configuration.is_local_only)
    gateway: dict[str, Any] = {"name": "gateway", "listeners": listeners}
    limits = _limits(configuration.general, report)
    if limits:
        gateway["limits"] = limits
    document: dict[str, Any] = {
        "nodes": [{"name": "root", "subtree": "", "listen": "127.0.0.1:7700"}],
        "gateways": [gateway],
    }
    bridges = _bridges(configuration, files, report)
    if bridges:
        document["bridges"] = bridges
        report.remarks.append(_LIBRARY)
    document["auth"] = auth
    persistence = configuration.general.last("persistence")
    if persistence is not None:
        kept = "messages that wait, and retained ones, are on disk (durability: fsync)"
        report.converted(persistence, kept if persistence.truth() else f"{kept}, also if mosquitto's are not")
    report_others(configuration, report)
    topology = f"{name}.yaml"
    files[topology] = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    return Conversion(topology, files, report)


def _listeners(
    configuration: Configuration, report: Report, has_ipv6: bool
) -> tuple[list[dict[str, Any]], Section]:
    """The listeners, and the section with what is said of users and rules."""
    if configuration.is_local_only:
        own = configuration.default if configuration.is_per_listener else configuration.general
        return [local_listener()], own
    sections = list(configuration.listeners)
    if configuration.default.last("port", "bind_address") is not None:
        sections.insert(0, configuration.default)
    first: Section | None = None
    found: list[dict[str, Any]] = []
    for section in sections:
        if configuration.is_per_listener and first is not None and _security(section) != _security(first):
            for line in section.lines:
                report.missing(line, _OTHER_USERS)
            continue
        made = (
            default_listener(configuration, report, has_ipv6=has_ipv6)
            if section is configuration.default
            else listener(section, configuration, report, has_ipv6=has_ipv6)
        )
        if made is not None:
            found.append(made)
            first = first or section
            if configuration.is_per_listener and section is not first:
                for line in section.lines:
                    if line.option in _SECURITY:
                        report.converted(line, "as for the first listener")
    security = (first or Section()) if configuration.is_per_listener else configuration.general
    return found or [local_listener()], security


_OTHER_USERS: Final = (
    "this listener has other users or rules than the first, and a network has one file of each: run a second "
    "gateway for it, with `hbroker gateway --listener … --passwords … --acl …`"
)


def _security(section: Section) -> dict[str, str]:
    return {option: section.value(option) for option in _SECURITY}


def _bridges(configuration: Configuration, files: dict[str, str], report: Report) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for section in configuration.connections:
        names = ["root", "gateway", *(each["name"] for each in found)]
        made = bridge(section, names, files, report)
        if made is not None:
            found.append(made)
    return found


_LIBRARY: Final = "bridges need a library: pip install 'hbroker[bridge]'"


def _auth(section: Section, files: dict[str, str], report: Report, *, is_local_only: bool) -> dict[str, Any]:
    auth: dict[str, Any] = {}
    users, rules, anonymous = (
        section.last(name) for name in ("password_file", "acl_file", "allow_anonymous")
    )
    allows = section.is_true("allow_anonymous", is_local_only)
    if users is not None:
        files["users"] = access.passwords(users, report).text
        auth["passwords"] = "users"
    elif not allows:
        # Without a file a gateway would let everybody in who says a name.
        files["users"] = ""
        auth["passwords"] = "users"
        report.remarks.append(_NOBODY)
    if rules is not None:
        files["rules"] = access.rules(rules, report).text
        auth["acl"] = "rules"
    auth["anonymous"] = allows
    report.converted(anonymous, f"anonymous: {str(allows).lower()}")
    return auth


_NOBODY: Final = (
    "without `password_file` and `allow_anonymous true` mosquitto lets nobody in, except by certificates: so "
    "the file of users is empty. Add users with `hbroker passwd`"
)


def _limits(general: Section, report: Report) -> dict[str, int]:
    """The limits of the gateway. 0 is mosquitto's word for none; then the default here stays."""
    limits: dict[str, int] = {}
    for option, key, low, high in _LIMITS:
        line = general.last(option)
        value = 0 if line is None else line.whole(-1)
        if value > 0:
            limits[key] = min(max(value, low), high)
            report.converted(line, f"{key}: {limits[key]}")
        else:
            report.missing(line, f"`{key}` has a bound here: see its default in docs/topology.md")
    expiry = general.last("persistent_client_expiration")
    if expiry is not None:
        number, unit = expiry.value[:-1], expiry.value[-1:]
        if not (number.isascii() and number.isdigit() and len(number) < 6 and unit in _DAYS):
            raise expiry.error(
                f"{expiry.value[:40]!r} is not a duration", "a number and one of h, d, w, m, y"
            )
        limits["session_expiry"] = max(1, min(round(int(number) * _DAYS[unit] * 86_400), 0xFFFF_FFFF))
        report.converted(expiry, f"session_expiry: {limits['session_expiry']} s")
    return limits


_LIMITS: Final = (
    ("max_inflight_messages", "in_flight", 1, 65_535),
    ("max_queued_messages", "queue_messages", 1, 10_000_000),
    ("max_queued_bytes", "queue_bytes", 1_024, 1 << 32),
    ("max_keepalive", "keep_alive", 1, 65_535),
    ("global_max_connections", "connections", 1, 10_000_000),
    ("global_max_clients", "connections", 1, 10_000_000),
)
