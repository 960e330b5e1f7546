"""Reads the file of one node, `node.yaml`: a mapping whose keys are the flags of `hbroker node`.

A flag beside the file replaces the key of its name. Paths in the file are relative to its folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from hbroker.config import Limits, NodeSettings, SecuritySettings, TelemetrySettings
from hbroker.hostnames import Resolver, resolve_host
from hbroker.topology.document import Report, compose, kind, listed, optional, read_text
from hbroker.topology.flags import check_root, flag_mapping
from hbroker.topology.rules import check_node
from hbroker.topology.sections import (
    LIMIT_KEYS,
    LIMIT_RANGES,
    NODE_KEYS,
    read_address,
    read_join_key,
    read_node,
    read_tokens,
    read_traces,
    read_workspaces,
)

__all__ = ["LOG_FORMATS", "LOG_LEVELS", "NodeFile", "load_node"]

LOG_FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_PATHS: Final = ("memory", "authority", "identity", "telemetry")
_KEYS: Final = (
    *NODE_KEYS,
    "root",
    "join_key_file",
    *_PATHS,
    "tokens",
    "traces",
    "log_format",
    "log_level",
    *LIMIT_KEYS,
    "workspaces",
)


@dataclass(frozen=True, slots=True)
class NodeFile:
    """What the file of a node says. `settings`: with its security and telemetry. `requires_tokens`: None: the
    file does not say. `memory`: the path of its state; None: it keeps none. `log_format`, `log_level`: empty:
    the file does not say."""

    settings: NodeSettings
    requires_tokens: bool | None
    memory: Path | None
    log_format: str
    log_level: str


def load_node(
    path: str | Path,
    flags: Mapping[str, str | None],
    *,
    also: Sequence[str] = (),
    workspaces: Sequence[str] = (),
    resolve: Resolver = resolve_host,
) -> NodeFile:
    """Reads the file of a node. `flags`, `also`, `workspaces`: of the command line, as in `node_from_flags`;
    they replace keys of the file. Raises ConfigErrors with all errors of both."""
    report = Report(str(path))
    document = compose(read_text(Path(path)), report)
    report.raise_if_any()
    assert document is not None, "compose notes an error or returns a node"
    if not isinstance(document, yaml.MappingNode):
        remedy = f"write `key: value` lines with {listed(_KEYS)}"
        report.error(document, f"the file holds {kind(document)}, not a mapping", remedy)
        report.raise_if_any()
        raise AssertionError("an error was noted")
    if any(isinstance(key, yaml.ScalarNode) and key.value == "nodes" for key, _ in document.value):
        report.error(document, "this is a topology file", "add --name NAME: the node of it to run")
        report.raise_if_any()
    values = report.mapping(document, "the file", _KEYS)
    given = flag_mapping(flags, also=also, workspaces=workspaces)
    values |= {key.value: value for key, value in given.value}
    read = _read(document, values, report, Path(path).parent, resolve)
    report.raise_if_any()
    assert read is not None, "a node without a name, a subtree or an address was reported"
    return read


def _read(
    document: yaml.MappingNode,
    values: dict[str, yaml.Node],
    report: Report,
    directory: Path,
    resolve: Resolver,
) -> NodeFile | None:
    parsed = read_node(_part(document, values, NODE_KEYS), 1, report, resolve)
    check_node(parsed, report)
    root = optional(values, "root", lambda value, key: read_address(value, key, report, resolve, None))
    check_root(values.get("root"), parsed.subtree, report)
    join_key = read_join_key(values, document, report, directory)
    limits = Limits(**report.numbers(values, LIMIT_RANGES))
    quotas = optional(values, "workspaces", lambda value, _: read_workspaces(value, report)) or ()
    paths = {key: _read_path(values, key, report, directory) for key in _PATHS}
    requires_tokens = optional(values, "tokens", lambda value, _: read_tokens(value, report))
    traces = optional(values, "traces", lambda value, _: read_traces(value, report))
    log_format = _read_word(values, "log_format", LOG_FORMATS, report)
    log_level = _read_word(values, "log_level", LOG_LEVELS, report)
    settings = parsed.settings(join_key, limits, root, quotas)
    if settings is None:
        return None
    settings = replace(
        settings,
        security=SecuritySettings(paths["authority"], paths["identity"]),
        telemetry=TelemetrySettings(directory=paths["telemetry"]),
        traces=traces or "",
    )
    memory = Path(paths["memory"]) if paths["memory"] else None
    return NodeFile(settings, requires_tokens, memory, log_format, log_level)


def _part(
    document: yaml.MappingNode, values: Mapping[str, yaml.Node], keys: Sequence[str]
) -> yaml.MappingNode:
    """The mapping with these of its keys alone, and the values that count."""
    pairs = [
        (yaml.ScalarNode("tag:yaml.org,2002:str", key, values[key].start_mark), values[key])
        for key in keys
        if key in values
    ]
    return yaml.MappingNode(document.tag, pairs, document.start_mark, document.end_mark)


def _read_path(values: Mapping[str, yaml.Node], key: str, report: Report, directory: Path) -> str:
    """The path; empty: there is none."""
    name = optional(values, key, report.text)
    if name == "":
        report.error(values[key], f"{key} names no file", "write its path, or remove the key")
    if not name:
        return ""
    is_flag = values[key].start_mark is None
    return name if is_flag else str(directory / name)


def _read_word(values: Mapping[str, yaml.Node], key: str, words: Sequence[str], report: Report) -> str:
    """One of the words; empty: there is none."""
    text = optional(values, key, report.text)
    if text is not None and text not in words:
        report.error(values[key], f"{text[:20]!r} is not a {key}", f"write one of {', '.join(words)}")
    return text or ""
