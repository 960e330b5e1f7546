"""For every topology and every text: a valid topology is read back, and an invalid one raises only
ConfigErrors."""

from __future__ import annotations

import re
import string
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hbroker import topology
from hbroker.config import (
    AdminSettings,
    Durability,
    LeasePolicy,
    Limits,
    NodeSettings,
    TelemetrySettings,
    WorkspaceQuotas,
)
from hbroker.errors import ConfigError, ConfigErrors
from hbroker.topology import Plan, Topology
from hbroker.topology.model import contains, with_root
from hbroker.topology.sections import (
    AUTH_KEYS,
    LIMIT_KEYS,
    LIMIT_RANGES,
    NODE_KEYS,
    QUOTA_RANGES,
    SECTIONS,
    TELEMETRY_RANGES,
)
from tests.test_topology import offline


def tidied(path: str) -> str:
    return str(Path(path))


ALNUM = string.ascii_letters + string.digits
PRINTABLE = st.characters(exclude_characters="/+#$", exclude_categories=["C", "Z"], include_characters=" ")
LEVEL = st.text(PRINTABLE, min_size=1, max_size=8)
SUBTREE = st.lists(LEVEL, min_size=1, max_size=4).map("/".join) | st.just("$workspace/acme/home")
NAME = st.builds(str.__add__, st.sampled_from(ALNUM), st.text(ALNUM + "_.-", max_size=12))
HOST = st.sampled_from(["127.0.0.1", "192.0.2.7", "255.255.255.255", "::1", "2001:db8::7", "fe80::1"])
KEYS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=16, max_size=40)
LIMITS = st.builds(Limits, **{key: st.integers(*bounds) for key, bounds in LIMIT_RANGES.items()})

WORKSPACES = st.lists(
    st.builds(
        WorkspaceQuotas,
        st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=64),
        **{key: st.just(0) | st.integers(*bounds) for key, bounds in QUOTA_RANGES.items()},
    ),
    max_size=3,
    unique_by=lambda quotas: quotas.name,
).map(tuple)

TELEMETRY = st.builds(
    TelemetrySettings,
    enabled=st.booleans(),
    file=st.integers(60, TELEMETRY_RANGES["file"][1]),
    directory=st.one_of(st.just(""), st.text(ALNUM + "/_.-", min_size=1).map("/var/".__add__).map(tidied)),
    **{key: st.integers(*bounds) for key, bounds in TELEMETRY_RANGES.items() if key != "file"},
)

BREAKS = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
"""The line breaks of YAML 1.1 (§5.4)."""

few = settings(max_examples=max(settings().max_examples // 2, 1), deadline=None)


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    """Any valid topology, with nested and separate subtrees."""
    names = draw(st.lists(NAME, min_size=1, max_size=8, unique=True))
    subtrees = draw(st.lists(SUBTREE, min_size=len(names) - 1, max_size=len(names) - 1, unique=True))
    further = [
        subtree for subtree in draw(st.lists(SUBTREE, max_size=4, unique=True)) if subtree not in subtrees
    ]
    also: list[tuple[str, ...]] = [()] * len(subtrees)
    if subtrees:
        also[draw(st.integers(0, len(subtrees) - 1))] = tuple(further)
    ports = draw(st.lists(st.integers(1, 65_535), min_size=len(names), max_size=len(names), unique=True))
    key = draw(st.one_of(st.just(""), KEYS)).encode()
    limits, workspaces = draw(LIMITS), draw(WORKSPACES)
    durability = draw(st.one_of(st.none(), st.sampled_from(Durability)))
    nodes = [
        NodeSettings(
            name=name,
            subtree=subtree,
            listen=(draw(HOST), port),
            advertise=draw(st.one_of(st.none(), st.tuples(HOST, st.just(0)))),
            workers=draw(st.integers(1, 64)),
            policy=draw(st.sampled_from(LeasePolicy)),
            durability=durability,
            join_key=key,
            limits=limits,
            also=others,
            workspaces=workspaces,
        )
        for name, subtree, port, others in zip(names, ["", *subtrees], ports, [(), *also], strict=True)
    ]
    plan = draw(st.one_of(st.none(), plans(names)))
    is_secure, requires_tokens = draw(st.sampled_from([(True, False), (True, True), (False, False)]))
    network = Topology("any", with_root(nodes), (), plan, is_secure, requires_tokens)
    admin = draw(admins(requires_tokens=requires_tokens))
    if admin is not None:
        admin = replace(admin, root=network.root.address, join_key=key)
    return replace(network.with_telemetry(draw(TELEMETRY)), admin=admin)


def admins(*, requires_tokens: bool) -> st.SearchStrategy[AdminSettings | None]:
    """What a network may say of its HTTP API. Other hosts reach only one with tokens and a certificate."""
    port = st.integers(0, 65_535)
    hosts = st.lists(st.sampled_from(["ops.example.org", "a"]), max_size=2).map(tuple)
    here = st.builds(AdminSettings, listen=st.tuples(st.just("127.0.0.1"), port), hosts=hosts)
    found = [st.none(), st.just(AdminSettings()), here.map(lambda admin: replace(admin, is_required=True))]
    if requires_tokens:
        everywhere = st.builds(
            AdminSettings,
            listen=st.tuples(HOST, port),
            hosts=hosts,
            certificate=st.just("tls/host.pem"),
            key=st.just("tls/host.key"),
        )
        found.append(everywhere.map(lambda admin: replace(admin, is_required=True)))
    return st.one_of(found)


def plans(names: list[str]) -> st.SearchStrategy[Plan]:
    """The loads that an analysis may predict for nodes of these names."""
    amount = st.floats(0, 1e9)
    loads = st.lists(amount, max_size=len(names)).map(lambda drawn: tuple(zip(names, drawn, strict=False)))
    return st.builds(Plan, amount, amount, loads)


@few
@given(networks())
def test_a_valid_topology_is_read_back(network: Topology) -> None:
    assert topology.parse(topology.render(network), file="any.yaml", resolve=offline) == network


@few
@given(networks())
def test_a_parent_is_the_nearest_node_that_holds_its_children(network: Topology) -> None:
    for node in network.nodes[1:]:
        parent = network.parent(node)
        assert parent is not None
        assert contains(parent.subtree, node.subtree)
        assert not any(
            contains(parent.subtree, between.subtree) and contains(between.subtree, node.subtree)
            for between in network.nodes
        )


@few
@given(networks(), st.data())
def test_a_node_that_repeats_another_is_refused(network: Topology, data: st.DataObject) -> None:
    node = data.draw(st.sampled_from(network.nodes))
    what = data.draw(st.sampled_from(["name", "subtree", "listen"]))
    fresh = replace(node, name="fresh-1", subtree="fresh/1", listen=("203.0.113.9", 9), advertise=None)
    twin = replace(fresh, **{what: getattr(node, what)})
    broken = replace(network, nodes=(*network.nodes, twin))
    with pytest.raises(ConfigErrors):
        topology.parse(topology.render(broken), resolve=offline)


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.dates())
KNOWN = st.sampled_from([*SECTIONS, *NODE_KEYS, *AUTH_KEYS, *LIMIT_KEYS])
VALUES = st.one_of(
    SCALARS, st.sampled_from(["", "127.0.0.1:7700", "[::1]:1", "home/kitchen", "serve", "[", ":", "::"])
)
DOCUMENTS = st.recursive(
    VALUES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(KNOWN, SCALARS), inner, max_size=6)
    ),
    max_leaves=30,
)


def only_config_errors(text: str) -> None:
    errors: tuple[ConfigError, ...] | None = None
    try:
        topology.parse(text, resolve=offline)
    except ConfigErrors as wrong:
        errors = wrong.errors
    if errors is not None:
        lines = len(BREAKS.split(text)) + 1
        assert errors
        assert all(error.line is None or 1 <= error.line <= lines for error in errors)
        assert all(error.message and error.remedy for error in errors)


@few
@given(DOCUMENTS)
def test_any_document_is_read_or_refused(document: object) -> None:
    only_config_errors(yaml.safe_dump(document))


@few
@given(st.dictionaries(KNOWN, DOCUMENTS, max_size=5), st.lists(st.dictionaries(KNOWN, DOCUMENTS), max_size=4))
def test_any_nodes_are_read_or_refused(sections: dict[str, object], nodes: list[object]) -> None:
    only_config_errors(yaml.safe_dump({**sections, "nodes": nodes}))


@few
@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    only_config_errors(text)


@example("{\x85\x85")
@few
@given(
    st.lists(st.sampled_from(list("{}[]:,-#&*!|>'\"%@`\t\n ?<=01aé\x85\u2028\ufeff\x00\\")), max_size=60).map(
        "".join
    )
)
def test_any_punctuation_is_read_or_refused(text: str) -> None:
    only_config_errors(text)


@few
@given(networks(), st.data())
def test_a_mutated_file_is_read_or_refused(network: Topology, data: st.DataObject) -> None:
    text = topology.render(network)
    at = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 6))
    only_config_errors(text[:at] + data.draw(st.text(max_size=4)) + text[at + length :])
