"""Reads the sections `nodes`, `auth`, `limits` and `telemetry` of a topology file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import yaml

from hbroker.addresses import ANY_ADDRESS, Address, parse_address
from hbroker.config import (
    MAX_WORKERS,
    NAME,
    Durability,
    LeasePolicy,
    Limits,
    NodeSettings,
    TelemetrySettings,
    WorkspaceQuotas,
)
from hbroker.hostnames import Resolver
from hbroker.topology.document import Report, kind, line_of, optional
from hbroker.workspace import ROOT, name_is_valid, name_of

SECTIONS = (
    "nodes",
    "gateways",
    "bridges",
    "admin",
    "auth",
    "security",
    "tokens",
    "limits",
    "workspaces",
    "telemetry",
    "traces",
    "plan",
)
NODE_KEYS = ("name", "subtree", "also", "listen", "advertise", "workers", "policy", "durability", "metrics")
JOIN_KEYS = ("join_key", "join_key_file")
AUTH_KEYS = (*JOIN_KEYS, "passwords", "acl", "jwt_keys", "jwt_issuer", "jwt_audience", "anonymous")
LIMIT_RANGES = {
    "sessions": (1, 10_000_000),
    "sessions_per_address": (1, 10_000_000),
    "queue_messages": (100, 1_000_000_000),
    "queue_bytes": (65_536, 1 << 32),
    "store_bytes": (1 << 24, 1 << 50),
    "subscriptions": (1, 10_000_000),
    "session_expiry": (1, 0xFFFF_FFFF),
    "delegations": (1, 1_000_000),
}
"""The keys of `limits`, which are the fields of `Limits`, each with its smallest and largest value."""
LIMIT_KEYS = tuple(LIMIT_RANGES)
QUOTA_RANGES = {
    "sessions": (1, 10_000_000),
    "subscriptions": (1, 1_000_000_000),
    "messages_per_second": (1, 10_000_000),
}
"""The keys of a workspace, which are the fields of `WorkspaceQuotas`, each with its smallest and largest
value."""
TELEMETRY_RANGES = {
    "interval": (1, 60),
    "file": (1, 3_600),
    "keep_bytes": (1 << 20, 1 << 50),
    "keep_hours": (1, 876_000),
}
"""The keys of `telemetry` with a whole number, each with its smallest and largest value."""

MIN_KEY_BYTES = 16
MAX_KEY_BYTES = 4096
MAX_SUBTREE_BYTES = 60_000
"""Less than the 65,535 bytes of a topic (docs/protocol.md §9), which leaves room for topics below the
subtree."""

ChoiceT = TypeVar("ChoiceT", bound=Enum)


@dataclass(frozen=True, slots=True)
class ParsedNode:
    """One item of `nodes`. None: the key is absent, or its value is wrong and was noted as an error."""

    line: int | None
    name: str | None
    subtree: str | None
    listen: Address | None
    advertise: Address | None
    workers: int
    policy: LeasePolicy
    also: tuple[str, ...] = ()
    durability: Durability | None = None
    metrics: Address | None = None

    def settings(
        self,
        join_key: bytes,
        limits: Limits,
        root: Address | None = None,
        workspaces: tuple[WorkspaceQuotas, ...] = (),
    ) -> NodeSettings | None:
        """The settings of the node, which joins at `root`; None: a value that it needs is None."""
        if self.name is None or self.subtree is None or self.listen is None:
            return None
        return NodeSettings(
            name=self.name,
            subtree=self.subtree,
            listen=self.listen,
            root=root,
            advertise=self.advertise,
            workers=self.workers,
            policy=self.policy,
            join_key=join_key,
            limits=limits,
            also=self.also,
            durability=self.durability,
            workspaces=workspaces,
            metrics=self.metrics,
        )


def read_node(node: yaml.Node, index: int, report: Report, resolve: Resolver) -> ParsedNode:
    """Reads one item of `nodes`. `index` counts from 1 and stands in errors for a name that is not known."""
    label = f"node {index}"
    values = report.mapping(node, label, NODE_KEYS)
    name = read_name(values["name"], report) if "name" in values else None
    label = f"node {name!r}" if name else label
    report.require(node, label, values, _NEEDED)
    listen = optional(values, "listen", lambda value, key: read_address(value, key, report, resolve, None))
    advertise = optional(values, "advertise", lambda value, _: read_advertise(value, report, resolve))
    if listen and listen[0] in ANY_ADDRESS and "advertise" not in values:
        remedy = "add `advertise: <host>`, the address at which others reach this host"
        report.error(
            values["listen"], f"{label} listens on every address ({listen[0]}) and advertises none", remedy
        )
    policy = optional(values, "policy", lambda value, key: _read_choice(LeasePolicy, key, value, report))
    return ParsedNode(
        line=line_of(node),
        name=name,
        subtree=optional(values, "subtree", lambda value, _: read_subtree(value, report)),
        listen=listen,
        advertise=advertise,
        workers=report.numbers(values, {"workers": (1, MAX_WORKERS)}).get("workers", 1),
        policy=policy or LeasePolicy.FENCE,
        durability=optional(
            values, "durability", lambda value, key: _read_choice(Durability, key, value, report)
        ),
        also=optional(values, "also", lambda value, _: read_also(value, report)) or (),
        metrics=optional(
            values, "metrics", lambda value, key: read_address(value, key, report, resolve, None)
        ),
    )


_NEEDED = {
    "name": "add `name: <name>`, one for each node",
    "subtree": 'add `subtree: <topic prefix>`, or `subtree: ""` for the root',
    "listen": "add `listen: 127.0.0.1:<port>`, or with the host's own address",
}


def read_name(node: yaml.Node, report: Report) -> str | None:
    """Reads the name of a node or gateway."""
    name = report.text(node, "name")
    if name is None or NAME.fullmatch(name):
        return name
    remedy = "use letters, digits, `-`, `_` and `.`, at most 63, a letter or digit first"
    report.error(node, f"{name[:70]!r} is not a valid name", remedy)
    return None


def read_workspace(node: yaml.Node, report: Report) -> str | None:
    """Reads the name of a workspace."""
    name = report.text(node, "workspace")
    if name is None or name_is_valid(name):
        return name
    report.error(node, f"{name[:70]!r} is no name of a workspace", "use 1 to 64 of a-z, 0-9 and `-`")
    return None


def read_subtree(node: yaml.Node, report: Report) -> str | None:
    """Reads a topic prefix; the empty text for the root."""
    subtree = report.text(node, "subtree")
    if subtree is None:
        return None
    wrong = subtree_error(subtree)
    if wrong is None:
        return subtree
    report.error(node, f"{subtree[:80]!r} is not a valid subtree: {wrong[0]}", wrong[1])
    return None


def read_also(node: yaml.Node, report: Report) -> tuple[str, ...]:
    """Reads the further subtrees of a node."""
    items = report.items(node, "also", "- <topic prefix>")
    read = [(item, read_subtree(item, report)) for item in items]
    for item, subtree in read:
        if subtree == "":
            remedy = 'name a branch; only `subtree: ""` makes a node the root'
            report.error(item, "`also` holds the whole hierarchy", remedy)
    return tuple(subtree for _, subtree in read if subtree)


def subtree_error(subtree: str) -> tuple[str, str] | None:
    """Why a subtree is not valid, and the remedy. None: it is valid."""
    if "+" in subtree or "#" in subtree:
        return "it holds a wildcard", "name one branch; all below it belongs to it without a wildcard"
    if subtree == "/":
        return "it has empty levels", 'write `subtree: ""` for the whole hierarchy'
    if subtree and "" in subtree.split("/"):
        return "it has an empty level", f"write {'/'.join(level for level in subtree.split('/') if level)!r}"
    if subtree.startswith("$") and not name_of(subtree):
        remedy = f"choose a first level without `$`, or a workspace, `{ROOT}/<name>`"
        return "topics that begin with `$` are the nodes' own", remedy
    if not subtree.isprintable():
        return "it holds a control character", "delete it"
    if len(subtree.encode()) > MAX_SUBTREE_BYTES:
        return f"it is over {MAX_SUBTREE_BYTES} bytes", "shorten it"
    return None


def read_advertise(node: yaml.Node, report: Report, resolve: Resolver) -> Address | None:
    """Reads the address that a node advertises to others. Port 0, also if none is written: the port to which
    the node binds."""
    address = read_address(node, "advertise", report, resolve, 0)
    if address and address[0] in ANY_ADDRESS:
        report.error(
            node,
            f"advertise is {address[0]}, which reaches nobody",
            "name the address at which others reach this host",
        )
        return None
    return address


def read_address(
    node: yaml.Node, label: str, report: Report, resolve: Resolver, default_port: int | None
) -> Address | None:
    """Reads `host:port` and resolves the host. If `default_port` is None, the port must be present."""
    text = node.value if isinstance(node, yaml.ScalarNode) else report.text(node, label)
    if text is None:
        return None
    try:
        host, port = parse_address(text, default_port=default_port)
    except ValueError as error:
        remedy = "write `<address>:<port>` with a port from 1 to 65535, or 0 for any free one"
        report.error(node, f"{label} is not an address: {error}", remedy)
        return None
    try:
        return resolve(host), port
    except OSError as error:
        reason = error.strerror or error
        report.error(
            node,
            f"{label}: the host {host!r} is not known ({reason})",
            "write an IP address, or fix the name",
        )
        return None


def _read_choice(choices: type[ChoiceT], key: str, node: yaml.Node, report: Report) -> ChoiceT | None:
    text = report.text(node, key)
    try:
        return choices(text) if text is not None else None
    except ValueError:
        values = " or ".join(f"`{choice.value}`" for choice in choices)
        report.error(node, f"{text!r} is not a {key}", f"write {values}")
        return None


def read_tokens(node: yaml.Node, report: Report) -> bool:
    """Whether clients have to show a token: `required` or `off`. Notes an error for anything else."""
    # `Report.text` would refuse `off`: YAML takes it for a truth value.
    text = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
    if text not in ("required", "off"):
        report.error(
            node, f"tokens is {f'{text[:20]!r}' if text else kind(node)}", "write `required` or `off`"
        )
    return text == "required"


def read_auth(node: yaml.Node, report: Report, directory: Path) -> bytes:
    """Reads the join key, inline or from a file. The path of the file is relative to `directory`."""
    values = read_auth_keys(node, report)
    return read_join_key(values, node, report, directory)


def read_auth_keys(node: yaml.Node, report: Report) -> dict[str, yaml.Node]:
    """The values of `auth`, by key."""
    values = report.mapping(node, "auth", AUTH_KEYS)
    if isinstance(node, yaml.MappingNode) and not values:
        report.error(node, "auth has no key", "add `join_key_file: <file>`, or remove `auth`")
    return values


def read_join_key(values: Mapping[str, yaml.Node], node: yaml.Node, report: Report, directory: Path) -> bytes:
    """The join key of `auth`. Empty: `auth` has none."""
    if all(key in values for key in JOIN_KEYS):
        report.error(node, "auth has both `join_key` and `join_key_file`", "keep one of them")
        return b""
    if "join_key" in values:
        key = (report.text(values["join_key"], "join_key") or "").encode("utf-8", "surrogatepass")
        return _long_enough(key, values["join_key"], report)
    if "join_key_file" in values:
        return _read_key_file(values["join_key_file"], report, directory)
    return b""


def read_limits(node: yaml.Node, report: Report) -> Limits:
    """Reads the limits of each node."""
    return Limits(**report.numbers(report.mapping(node, "limits", LIMIT_KEYS), LIMIT_RANGES))


def read_workspaces(node: yaml.Node, report: Report) -> tuple[WorkspaceQuotas, ...]:
    """Reads the quotas of each workspace."""
    names = [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
    known = tuple(name for name in names if isinstance(name, str) and name_is_valid(name))
    if isinstance(node, yaml.MappingNode):
        for key, _ in node.value:
            if key.value not in known:
                read_workspace(key, report)
        valid = [pair for pair in node.value if pair[0].value in known]
        node = yaml.MappingNode(node.tag, valid, node.start_mark, node.end_mark)
    found = report.mapping(node, "workspaces", known or ("acme",))
    return tuple(
        WorkspaceQuotas(
            name,
            **report.numbers(
                report.mapping(values, f"workspace {name!r}", tuple(QUOTA_RANGES)), QUOTA_RANGES
            ),
        )
        for name, values in found.items()
    )


def read_telemetry(node: yaml.Node, report: Report, directory: Path) -> TelemetrySettings:
    """Reads the section. The path in it is relative to `directory`, the topology's."""
    values = report.mapping(node, "telemetry", ("enabled", *TELEMETRY_RANGES, "directory"))
    place = optional(values, "directory", report.text)
    if place == "":
        report.error(values["directory"], "directory names no directory", "write its path, or remove the key")
    settings = TelemetrySettings(
        enabled=optional(values, "enabled", report.truth) is not False,
        directory=str(directory / place) if place else "",
        **report.numbers(values, TELEMETRY_RANGES),
    )
    if settings.file < settings.interval:
        message = f"a file is about {settings.file} s, less than an interval of {settings.interval} s"
        report.error(node, message, "give `file` no less than `interval`")
    return settings


def read_traces(node: yaml.Node, report: Report) -> str:
    """The URL of a collector of spans; empty: it is not valid."""
    text = report.text(node, "traces")
    if text is None:
        return ""
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.netloc:
        remedy = "write the URL of a collector, as `http://127.0.0.1:4318/v1/traces`"
        report.error(node, f"{text[:80]!r} is no URL of http or https", remedy)
        return ""
    return text


def _read_key_file(node: yaml.Node, report: Report, directory: Path) -> bytes:
    name = report.text(node, "join_key_file")
    if name is None:
        return b""
    path = directory / name
    try:
        with path.open("rb") as file:
            key = file.read(MAX_KEY_BYTES + 1).strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        report.error(
            node, f"cannot read the join key from {path} ({reason})", "check the file's name and permission"
        )
        return b""
    return _long_enough(key, node, report)


def _long_enough(key: bytes, node: yaml.Node, report: Report) -> bytes:
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        message = f"the join key has {len(key)} bytes, not {MIN_KEY_BYTES} to {MAX_KEY_BYTES}"
        report.error(node, message, "make one with `openssl rand -hex 32`")
        return b""
    return key
