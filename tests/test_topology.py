"""A topology file is read into frozen settings, or into all its errors with line and remedy.

Each file in tests/topologies/ has one error (`many.yaml` several), and ends with the expected message: `#
expect <line>: <message>; <remedy>`.
"""

from __future__ import annotations

import ipaddress
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from hbroker import topology
from hbroker.config import AccessSettings, GatewayLimits, LeasePolicy, Limits
from hbroker.errors import ConfigError, ConfigErrors
from hbroker.subtree import depth
from hbroker.topology.document import MAX_BYTES
from hbroker.topology.model import contains

PROJECT = Path(__file__).parent.parent
BROKEN = sorted((PROJECT / "tests" / "topologies").glob("*.yaml"))
MARK = "# expect "


def offline(host: str) -> str:
    """A resolver that knows only IP addresses."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        raise OSError(-2, "Name or service not known") from None


def errors_of(text: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        topology.parse(text, resolve=offline)
    return [f"{error.line}: {error.message}; {error.remedy}" for error in caught.value.errors]


def test_there_are_enough_broken_examples() -> None:
    assert len(BROKEN) >= 20


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_a_broken_file_is_reported_with_lines_and_remedies(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    expected = [line.removeprefix(MARK) for line in path.read_text().split("\n") if line.startswith(MARK)]
    with pytest.raises(ConfigErrors) as caught:
        topology.load(path.name, resolve=offline)
    assert [f"{e.line}: {e.message}; {e.remedy}" for e in caught.value.errors] == expected
    assert all(error.file == path.name for error in caught.value.errors)
    assert all(f"{path.name}:{e.line}: " in str(caught.value) for e in caught.value.errors if e.line)


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(ConfigErrors, match=r"cannot read the file \(No such file or directory\)"):
        topology.load("no/such/file.yaml")


def test_a_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors, match=r"cannot read the file \(Is a directory\)"):
        topology.load(tmp_path)


def test_a_file_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes("nodes:\n  - {name: küche}\n".encode("latin-1"))
    with pytest.raises(ConfigErrors, match=r"latin\.yaml:2: the text is not UTF-8; save the file as UTF-8"):
        topology.load(path)


def test_a_file_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigErrors, match="the file is over"):
        topology.load(path)


def test_nesting_that_is_too_deep_is_an_error() -> None:
    assert errors_of("[" * 2_000) == [
        "None: lists or mappings are nested too deeply; follow the form of docs/topology.md"
    ]


def test_an_alias_that_contains_itself_is_an_error() -> None:
    assert errors_of("nodes: &a [*a]") != []


@pytest.mark.parametrize(
    ("name", "nodes", "levels"),
    [("single", 1, 0), ("home", 6, 3), ("campus", 40, 3)],
    ids=["single", "home", "campus"],
)
def test_the_built_in_topologies_are_valid(name: str, nodes: int, levels: int) -> None:
    network = topology.load(PROJECT / "topologies" / f"{name}.yaml")
    assert network.name == name
    assert len(network.nodes) == nodes
    assert max(depth(node.subtree) for node in network.nodes) == levels
    assert network.root.listen == ("127.0.0.1", 7700)


def test_the_home_topology_has_the_rooms_of_the_paper() -> None:
    network = topology.load(PROJECT / "topologies" / "home.yaml")
    parents = {node.subtree: parent.name for node in network.nodes if (parent := network.parent(node))}
    assert parents == {
        "home/kitchen": "root",
        "home/livingroom": "root",
        "home/bedroom": "root",
        "home/outside": "root",
        "home/outside/securitycams": "outside",
    }


def test_every_setting_is_read() -> None:
    network = topology.parse(
        """
        limits: {sessions: 10, queue_messages: 200, queue_bytes: 65536, delegations: 7}
        auth: {join_key: 0123456789abcdef}
        nodes:
          - {name: kitchen, subtree: home/kitchen, listen: "[::1]:0", workers: 3, policy: serve}
          - {name: root, subtree: "", listen: "0.0.0.0:7700", advertise: 192.0.2.1}
        """,
        file="house.yaml",
        resolve=offline,
    )
    root, kitchen = network.nodes
    assert network.name == "house"
    assert (root.name, root.subtree, root.listen, root.root) == ("root", "", ("0.0.0.0", 7700), None)
    assert root.address == ("192.0.2.1", 7700)
    assert root.is_root
    assert kitchen.root == ("192.0.2.1", 7700)
    assert (kitchen.listen, kitchen.workers, kitchen.policy) == (("::1", 0), 3, LeasePolicy.SERVE)
    assert kitchen.join_key == b"0123456789abcdef"
    assert (
        kitchen.limits
        == root.limits
        == Limits(sessions=10, queue_messages=200, queue_bytes=65536, delegations=7)
    )
    assert "0123456789abcdef" not in repr(network)
    with pytest.raises(FrozenInstanceError):
        root.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("address", "tls", "auth", "is_refused"),
    [
        ("127.0.0.1", "", "", False),
        ("127.8.0.1", "", "", False),
        ("[::1]", "", "", False),
        ("[::ffff:127.0.0.1]", "", "", False),
        ("0.0.0.0", "", "", True),
        ("[::]", "", "", True),
        ("192.0.2.1", "", "", True),
        ("192.0.2.1", "", "anonymous: true", False),
        ("192.0.2.1", "", "passwords: users", False),
        ("192.0.2.1", "", "jwt_keys: keys.json", False),
        ("192.0.2.1", "", "jwt_keys: http://127.0.0.1:80/keys", False),
        ("192.0.2.1", "", "anonymous: true, passwords: users", False),
        ("192.0.2.1", "", "anonymous: false", True),  # any name with any password is accepted
        ("192.0.2.1", "", "acl: rules", True),
        ("192.0.2.1", "certificate: c, key: k", "", True),
        ("192.0.2.1", "certificate: c, key: k, client_ca: a, client_certificate: optional", "", True),
        ("192.0.2.1", "certificate: c, key: k, client_ca: a, client_certificate: required", "", False),
        ("192.0.2.1", "certificate: c, key: k, client_ca: a, names_user: true", "", True),
        ("192.0.2.1", "certificate: c, key: k, client_ca: a, names_user: true", "anonymous: false", False),
    ],
)
def test_a_listener_without_authentication_is_local_or_explicitly_anonymous(
    address: str, tls: str, auth: str, is_refused: bool
) -> None:
    secured = f", tls: {{{tls}}}" if tls else ""
    text = (
        'nodes: [{name: root, subtree: "", listen: "127.0.0.1:0"}]\n'
        f'gateways: [{{name: g, listeners: [{{address: "{address}:1883"{secured}}}]}}]\n'
        + (f"auth: {{{auth}}}\n" if auth else "")
    )
    try:
        topology.parse(text)
    except ConfigErrors as wrong:
        (error,) = wrong.errors
        assert is_refused, error
        assert (error.line, "takes everybody who reaches it" in error.message) == (2, True)
    else:
        assert not is_refused
    topology.parse(text, has_policy=True)


@pytest.mark.parametrize(
    ("auth", "told"),
    [
        ("jwt_keys: http://login.example.org/keys", "whoever changes what comes over http gets in"),
        ("jwt_issuer: us", "jwt_keys names no file and no URL"),
    ],
)
def test_keys_of_tokens_come_over_a_safe_way(auth: str, told: str) -> None:
    with pytest.raises(ConfigErrors, match=told):
        topology.parse(f'auth: {{{auth}}}\nnodes: [{{name: root, subtree: "", listen: "127.0.0.1:0"}}]\n')


def test_who_has_no_certificate_has_no_client_id_of_its_own() -> None:
    tls = "{certificate: c, key: k, client_ca: a, names_client: true}"
    with pytest.raises(ConfigErrors, match="a client could have the client id of another") as caught:
        topology.parse(
            'nodes: [{name: root, subtree: "", listen: "127.0.0.1:0"}]\n'
            f'gateways: [{{name: g, listeners: [{{address: "127.0.0.1:1883", tls: {tls}}}]}}]\n'
        )
    assert caught.value.errors[0].line == 2


def test_the_join_key_file_is_relative_to_the_topology_file(tmp_path: Path) -> None:
    (tmp_path / "network.key").write_text("a secret of some length\n")
    path = tmp_path / "keyed.yaml"
    path.write_text(
        'auth: {join_key_file: network.key}\nnodes:\n  - {name: root, subtree: "", listen: "127.0.0.1:0"}\n'
    )
    assert topology.load(path).root.join_key == b"a secret of some length"


def test_new_ports_are_set_in_all_nodes() -> None:
    network = topology.load(PROJECT / "topologies" / "home.yaml")
    moved = network.on_ports({node.name: 9000 + i for i, node in enumerate(network.nodes)})
    assert [node.listen[1] for node in moved.nodes] == [9000, 9001, 9002, 9003, 9004, 9005]
    assert {node.root for node in moved.nodes[1:]} == {("127.0.0.1", 9000)}


@pytest.mark.parametrize(
    ("text", "requires"),
    [("", True), ("security: off", False), ("tokens: off", False), ('tokens: "required"', True)],
)
def test_tokens_are_required_if_the_file_says_so(text: str, requires: bool) -> None:
    nodes = 'nodes:\n  - {name: root, subtree: "", listen: "127.0.0.1:7700"}\n'
    assert topology.parse(f"{nodes}{text}\n", resolve=offline).requires_tokens is requires


def test_a_subtree_holds_only_whole_levels() -> None:
    assert contains("home/kitchen", "home/kitchen/oven")
    assert contains("", "home")
    assert not contains("home/kitchen", "home/kitchenette")
    assert not contains("home/kitchen", "home/kitchen")


def test_an_error_has_its_place_and_a_remedy() -> None:
    error = ConfigError("port 0 is over", file="a.yaml", line=3, remedy="choose another")
    assert str(error) == "a.yaml:3: port 0 is over; choose another"


GATEWAYS = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
gateways:
  - name: gate
    listen: 127.0.0.1:0
    workers: 2
    server_reference: other.example:1883
    limits: {in_flight: 20, keep_alive: 300}
    listeners:
      - {address: "127.0.0.1:1883", gives_way: true, acknowledge: distributed, connections: 7}
      - {address: "[::1]:8083", websocket: /mqtt, proxy_protocol: true}
      - address: 127.0.0.1:8883
        tls: {certificate: c.pem, key: k.pem, client_ca: ca.pem, client_certificate: required}
  - {name: plain, listeners: [{address: "127.0.0.1:1884"}]}
auth: {passwords: users, acl: rules, anonymous: false}
"""


def test_gateways_are_read_completely() -> None:
    network = topology.parse(GATEWAYS, file="dir/house.yaml", resolve=offline)
    gate, plain = network.gateways
    assert gate.root == plain.root == ("127.0.0.1", 7700)
    assert [listener.url for listener in gate.listeners] == [
        "mqtt://127.0.0.1:1883",
        "ws://[::1]:8083/mqtt",
        "mqtts://127.0.0.1:8883",
    ]
    first, second, third = gate.listeners
    assert (first.gives_way, first.is_distributed, first.connections) == (True, True, 7)
    assert second.proxy_protocol
    assert third.tls is not None
    assert (third.tls.certificate, third.tls.needs_certificate) == ("dir/c.pem", True)
    assert (gate.limits.in_flight, gate.limits.keep_alive, gate.workers) == (20, 300, 2)
    assert gate.access == AccessSettings("dir/users", "dir/rules", anonymous=False)
    assert plain.limits == GatewayLimits()
    assert network.gateway("plain") is plain
    assert network.on_ports({"root": 9}).gateways[0].root == ("127.0.0.1", 9)


def test_rendered_gateways_are_read_back() -> None:
    network = topology.parse(GATEWAYS, file="house.yaml", resolve=offline)
    assert topology.parse(topology.render(network), file="house.yaml", resolve=offline) == network
