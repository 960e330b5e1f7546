"""Reads the section `bridges` of a topology file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from hbroker._native import filter_is_valid
from hbroker.addresses import Address, parse_address
from hbroker.config import BridgeSettings, BridgeTls, BridgeTopic, Direction
from hbroker.topology.document import Report, line_of, optional
from hbroker.topology.sections import read_name

__all__ = [
    "BRIDGE_RANGES",
    "VERSIONS",
    "ParsedBridge",
    "bridge_settings",
    "client_id_is_valid",
    "read_bridge",
    "topic_error",
]

BRIDGE_RANGES: Final = {
    "keep_alive": (5, 65_535),
    "pause": (1, 3_600),
    "longest_pause": (1, 86_400),
    "in_flight": (1, 10_000),
}
"""The numbers of `BridgeSettings`, each with its smallest and largest value."""
BRIDGE_KEYS: Final = (
    *("name", "addresses", "topics", "client_id", "username", "password", "password_file", "tls"),
    *("clean_start", "version", "notifies", *BRIDGE_RANGES),
)
TOPIC_KEYS: Final = ("filter", "direction", "qos", "local_prefix", "remote_prefix")
TLS_KEYS: Final = ("ca", "certificate", "key", "checks_host")
VERSIONS: Final = ("5", "3.1.1")
NOTIFIES: Final = ("both", "local", "none")

_PORT: Final = 1883
_TLS_PORT: Final = 8883
_NOWHERE: Final = ("", 0)
_LONGEST_ID: Final = 512


@dataclass(frozen=True, slots=True)
class ParsedBridge:
    """One item of `bridges`. `name`: None: it is absent, or wrong and was noted as an error. `settings`: as
    far as they could be read, without the root and the join key."""

    line: int | None
    name: str | None
    settings: BridgeSettings


def read_bridge(node: yaml.Node, index: int, report: Report, directory: Path) -> ParsedBridge:
    """Reads one item of `bridges`. Paths in it are relative to `directory`, the topology's."""
    label = f"bridge {index}"
    values = report.mapping(node, label, BRIDGE_KEYS)
    name = read_name(values["name"], report) if "name" in values else None
    label = f"bridge {name!r}" if name else label
    report.require(node, label, values, _NEEDED)
    tls = optional(values, "tls", lambda value, _: _read_tls(value, report, directory))
    port = _PORT if "tls" not in values else _TLS_PORT
    addresses = (
        report.items(values["addresses"], "addresses", "- <host>:<port>") if "addresses" in values else []
    )
    topics = report.items(values["topics"], "topics", _TOPIC) if "topics" in values else []
    read = (_read_topic(item, report) for item in topics)
    settings = BridgeSettings(
        name=name or "",
        root=_NOWHERE,
        addresses=tuple(filter(None, (_read_remote(item, report, port) for item in addresses))),
        topics=tuple(topic for topic in read if topic is not None),
        client_id=optional(values, "client_id", report.text) or "",
        tls=tls,
        clean_start=optional(values, "clean_start", report.truth) or False,
        version=_choice(values, "version", VERSIONS, report) or "",
        notifies=_choice(values, "notifies", NOTIFIES, report) or NOTIFIES[0],
    )
    more: dict[str, Any] = {**_login(values, report, directory), **report.numbers(values, BRIDGE_RANGES)}
    settings = replace(settings, **more)
    if settings.longest_pause < settings.pause:
        settings = replace(settings, longest_pause=settings.pause)
        if "longest_pause" in values:
            message = f"longest_pause is shorter than the pause of {settings.pause} s"
            report.error(values["longest_pause"], message, "write a longer one")
    if not client_id_is_valid(settings.client_id):
        remedy = f"use at most {_LONGEST_ID} bytes, without `+`, `#` and `/`: it is a level of a topic"
        report.error(values["client_id"], f"{settings.client_id[:40]!r} cannot be the client id", remedy)
    return ParsedBridge(line_of(node), name, settings)


def client_id_is_valid(client_id: str) -> bool:
    """Whether a bridge may have this client id, which is a level of the topic with its state."""
    return len(client_id.encode()) <= _LONGEST_ID and set("+#/").isdisjoint(client_id)


def bridge_settings(parsed: ParsedBridge, root: Address, join_key: bytes) -> BridgeSettings:
    """The settings of an entry that was read without an error."""
    return replace(parsed.settings, root=root, join_key=join_key)


_TOPIC: Final = "- {filter: home/#, direction: out}"
_NEEDED: Final = {
    "name": "add `name: <name>`, one for each bridge",
    "addresses": "add `addresses: [<host>:<port>]`, where the other broker listens",
    "topics": f"add `topics:` and below it `{_TOPIC}`",
}


def _read_remote(node: yaml.Node, report: Report, port: int) -> Address | None:
    text = node.value if isinstance(node, yaml.ScalarNode) else report.text(node, "an address")
    if text is None:
        return None
    try:
        return parse_address(text, default_port=port)
    except ValueError as error:
        report.error(node, f"not an address: {error}", "write `<host>` or `<host>:<port>`")
        return None


def _read_topic(node: yaml.Node, report: Report) -> BridgeTopic | None:
    values = report.mapping(node, "a topic of a bridge", TOPIC_KEYS)
    report.require(node, "a topic of a bridge", values, {"filter": "add `filter: <filter>`, as `home/#`"})
    texts = {
        key: optional(values, key, report.text) or "" for key in ("filter", "local_prefix", "remote_prefix")
    }
    directions = tuple(direction.value for direction in Direction)
    direction = _choice(values, "direction", directions, report) or Direction.OUT.value
    qos = report.integer(values["qos"], "qos", 0, 2) if "qos" in values else 1
    if qos == 2:
        report.error(
            values["qos"], "a bridge does not carry messages at QoS 2", "write `qos: 1`: at least once"
        )
    topic = BridgeTopic(direction=Direction(direction), qos=qos or 0, **texts)
    wrong = topic_error(topic)
    if wrong is not None and "filter" in values:
        report.error(node, *wrong)
        return None
    return topic if "filter" in values else None


def topic_error(topic: BridgeTopic) -> tuple[str, str] | None:
    """What is wrong with a topic of a bridge, and the remedy. None: nothing."""
    prefixes = topic.local_prefix, topic.remote_prefix
    for prefix in prefixes:
        if "+" in prefix or "#" in prefix:
            return f"the prefix {prefix[:60]!r} has a wildcard", "write wildcards into `filter`"
    if not topic.filter and not all(prefixes):
        return "the filter is empty", "name one, or both prefixes: then these are the two topics"
    for side, filter in (("local", topic.local), ("remote", topic.remote)):
        if not filter_is_valid(filter):
            return (
                f"{filter[:60]!r}, the {side} filter, is not valid",
                "put `+` alone into a level, `#` at the end",
            )
    if topic.remote.startswith("$share/"):
        return "a bridge cannot be in a shared group", "leave out `$share/<group>/`"
    may_begin = ("$SYS/",) if topic.direction is Direction.OUT else ()
    if topic.local.startswith("$") and not topic.local.startswith(may_begin):
        remedy = "carry them to another place by `local_prefix`, or leave them out"
        return f"{topic.local[:60]!r}: topics that begin with `$` belong to the network", remedy
    return None


def _read_tls(node: yaml.Node, report: Report, directory: Path) -> BridgeTls:
    values = report.mapping(node, "tls", TLS_KEYS)
    files = {key: optional(values, key, report.text) or "" for key in ("ca", "certificate", "key")}
    if bool(files["certificate"]) != bool(files["key"]):
        report.error(node, "tls has a certificate without a key, or a key without one", "name both, or none")
    paths = {key: str(directory / name) if name else "" for key, name in files.items()}
    return BridgeTls(**paths, checks_host=optional(values, "checks_host", report.truth) is not False)


def _login(values: Mapping[str, yaml.Node], report: Report, directory: Path) -> dict[str, str]:
    login = {
        key: optional(values, key, report.text) or "" for key in ("username", "password", "password_file")
    }
    if login["password"] and login["password_file"]:
        report.error(values["password"], "there are both `password` and `password_file`", "keep one of them")
    if (login["password"] or login["password_file"]) and not login["username"]:
        given = values.get("password_file") or values["password"]
        report.error(given, "there is a password without a user name", "add `username: <name>`")
    if login["password_file"]:
        login["password_file"] = str(directory / login["password_file"])
    return login


def _choice(
    values: Mapping[str, yaml.Node], key: str, choices: tuple[str, ...], report: Report
) -> str | None:
    """One of these texts. YAML may take it for a number."""
    node = values.get(key)
    text = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
    if node is None or text in choices:
        return text or None
    report.error(node, f"{key} is {text[:40]!r}", f"write {' or '.join(f'`{name}`' for name in choices)}")
    return None
