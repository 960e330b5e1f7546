"""The section `bridges` of a topology file, and the files that it names."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker import topology
from hbroker.cli import main
from hbroker.cli.exits import DONE, USAGE
from hbroker.config import BridgeSettings, BridgeTls, BridgeTopic, Direction
from hbroker.errors import ConfigErrors
from hbroker.topology.bridges import client_id_is_valid, topic_error
from tests.topics import FILTERS

NODES = 'nodes: [{name: root, subtree: "", listen: "127.0.0.1:7700"}]\n'
FULL = (
    NODES
    + """
bridges:
  - name: cloud
    addresses: [broker.example.org, "[::1]:8884"]
    client_id: site-7
    username: site
    password_file: secret
    tls: {ca: ca.pem, certificate: site.pem, key: site.key, checks_host: false}
    keep_alive: 30
    clean_start: true
    version: 3.1.1
    notifies: local
    pause: 2
    longest_pause: 9
    in_flight: 7
    topics:
      - {filter: "home/#"}
      - {filter: "", direction: both, qos: 0, local_prefix: here, remote_prefix: there}
  - name: plain
    addresses: ["127.0.0.1"]
    version: 5
    topics: [{filter: "$SYS/#", remote_prefix: site/}]
"""
)


def test_bridges_are_read_completely() -> None:
    cloud, plain = topology.parse(FULL, file="/etc/site.yaml").bridges
    assert cloud == BridgeSettings(
        name="cloud",
        root=("127.0.0.1", 7700),
        addresses=(("broker.example.org", 8883), ("::1", 8884)),
        topics=(
            BridgeTopic("home/#"),
            BridgeTopic("", Direction.BOTH, 0, "here", "there"),
        ),
        client_id="site-7",
        username="site",
        password_file="/etc/secret",
        tls=BridgeTls("/etc/ca.pem", "/etc/site.pem", "/etc/site.key", checks_host=False),
        keep_alive=30,
        clean_start=True,
        version="3.1.1",
        notifies="local",
        pause=2,
        longest_pause=9,
        in_flight=7,
    )
    assert plain.addresses == (("127.0.0.1", 1883),)
    assert (plain.version, plain.notifies, plain.longest_pause) == ("5", "both", 30)


def test_rendered_bridges_are_read_back() -> None:
    network = topology.parse(FULL, file="/etc/site.yaml")
    assert topology.parse(topology.render(network), file="/etc/site.yaml") == network


TEXT = st.text(st.characters(min_codepoint=32, exclude_categories=["C", "Z"]), max_size=10)
PATHS = st.sampled_from(["", "/etc/a file", "/etc/ä.pem"])
ENTRIES = st.builds(
    BridgeTopic,
    FILTERS.filter(lambda filter: not filter.startswith("$")),
    st.sampled_from(Direction),
    st.sampled_from([0, 1]),
    st.sampled_from(["", "a/", "1", "on"]),
    st.sampled_from(["", "b/", "$SYS/"]),
).filter(lambda topic: topic_error(topic) is None)
LOGINS = st.sampled_from([{}, {"username": "on"}, {"username": "u", "password": "1"}])
BRIDGES = st.builds(
    lambda login, **keys: BridgeSettings(name="b", root=("127.0.0.1", 7700), **login, **keys),
    LOGINS,
    addresses=st.lists(
        st.tuples(st.sampled_from(["a.b", "::1", "127.0.0.1"]), st.integers(1, 65_535)), min_size=1
    ).map(tuple),
    topics=st.lists(ENTRIES, min_size=1, max_size=3).map(tuple),
    client_id=TEXT.filter(client_id_is_valid),
    tls=st.none() | st.builds(BridgeTls, PATHS, checks_host=st.booleans()),
    clean_start=st.booleans(),
    version=st.sampled_from(["", "5", "3.1.1"]),
    notifies=st.sampled_from(["both", "local", "none"]),
    keep_alive=st.integers(5, 65_535),
    in_flight=st.integers(1, 10_000),
)


@given(BRIDGES)
def test_every_bridge_is_read_back(bridge: BridgeSettings) -> None:
    network = replace(topology.parse(NODES, file="/etc/site.yaml"), bridges=(bridge,))
    assert topology.parse(topology.render(network), file="/etc/site.yaml") == network


@given(st.text(max_size=60))
def test_arbitrary_text_raises_only_config_errors(text: str) -> None:
    with suppress(ConfigErrors):
        topology.parse(f"{NODES}bridges: [{{name: b, {text}}}]\n")


def test_bridges_get_what_the_network_has() -> None:
    network = topology.parse(FULL).on_ports({"root": 9}).with_join_key(b"k" * 16)
    assert {(bridge.root, bridge.join_key) for bridge in network.bridges} == {(("127.0.0.1", 9), b"k" * 16)}
    assert "k" * 16 not in repr(network.bridges)


TOPIC = "{filter: a}"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("", "bridge 'b' has no `addresses`"),
        ("addresses: []", "addresses is an empty list"),
        ('addresses: ["a:b"]', "'b' is not a port number"),
        (f"addresses: [a], topics: [{TOPIC}], topic: x", "did you mean `topics`?"),
        ("addresses: [a], topics: [{direction: out}]", "has no `filter`"),
        ('addresses: [a], topics: [{filter: ""}]', "the filter is empty"),
        ("addresses: [a], topics: [{filter: a#}]", "'a#', the local filter, is not valid"),
        ('addresses: [a], topics: [{filter: a, remote_prefix: "x/+/"}]', "has a wildcard"),
        ("addresses: [a], topics: [{filter: a, qos: 2}]", "at least once"),
        ("addresses: [a], topics: [{filter: a, direction: up}]", "write `in` or `out` or `both`"),
        ('addresses: [a], topics: [{filter: "$SYS/#", direction: both}]', "belong to the network"),
        ('addresses: [a], topics: [{filter: "$gateway/#"}]', "belong to the network"),
        ('addresses: [a], topics: [{filter: x, remote_prefix: "$share/g/"}]', "shared group"),
        (f"addresses: [a], topics: [{TOPIC}], version: 3.1", "write `5` or `3.1.1`"),
        (f"addresses: [a], topics: [{TOPIC}], password: x", "without a user name"),
        (f"addresses: [a], topics: [{TOPIC}], username: u, password: x, password_file: y", "keep one"),
        (f"addresses: [a], topics: [{TOPIC}], tls: {{certificate: x}}", "without a key"),
        (f"addresses: [a], topics: [{TOPIC}], client_id: a/b", "cannot be the client id"),
        (f"addresses: [a], topics: [{TOPIC}], pause: 20, longest_pause: 10", "shorter than the pause"),
    ],
)
def test_an_error_says_what_to_do(keys: str, message: str) -> None:
    text = f"{NODES}bridges: [{{name: b, {keys}}}]\n"
    with pytest.raises(ConfigErrors) as caught:
        topology.parse(text)
    assert message in str(caught.value)
    assert "topology.yaml:2: " in str(caught.value)


def test_a_bridge_has_a_name_of_its_own() -> None:
    text = f"{NODES}bridges: [{{name: root, addresses: [a], topics: [{TOPIC}]}}]\n"
    with pytest.raises(ConfigErrors, match="'root' is taken on line 1"):
        topology.parse(text)


def test_the_files_of_bridges_are_checked_before_a_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "site.yaml"
    keys = f"name: b, addresses: [a], topics: [{TOPIC}], username: u, password_file: secret"
    file.write_text(f"{NODES}bridges: [{{{keys}, tls: {{ca: ca.pem}}}}]\n")
    assert main(["check", str(file), "--json"]) == USAGE
    errors = json.loads(capsys.readouterr().out)["files"][0]["errors"]
    assert [error["file"] for error in errors] == [str(tmp_path / "secret"), str(tmp_path / "ca.pem")]
    assert main(["up", str(file), "--state-dir", str(tmp_path / "state")]) == USAGE
    assert not (tmp_path / "state").exists()
    (tmp_path / "secret").write_text("x\n")
    file.write_text(f"{NODES}bridges: [{{{keys}, tls: {{}}}}]\n")
    assert main(["check", str(file)]) == DONE
