"""The operator's token that `hbroker up` provides for a network that requires tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbroker.cli.network import up
from hbroker.config import SecuritySettings
from hbroker.errors import ConfigError
from hbroker.identity.authority import Authority, AuthorityCertificate
from hbroker.identity.rotation import RotationStep, rotate
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights
from hbroker.rights.token import create, verify
from hbroker.rights.verified import VerifiedToken
from hbroker.runtime.launcher.identities import provide
from hbroker.runtime.launcher.launcher import Launcher
from hbroker.runtime.launcher.operator_token import VALIDITY_S
from hbroker.runtime.launcher.run_directory import RunDirectory
from hbroker.runtime.launcher.spawn import Bodies
from hbroker.topology import Topology
from hbroker.topology.parse import parse

NOW = 1_800_000_000.0
FILE = """
admin: off
tokens: required
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
gateways:
  - {name: gateway, listeners: [{address: "127.0.0.1:1883"}]}
"""


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path, "house")


def network(text: str = FILE) -> Topology:
    return parse(text, file="house.yaml")


def unused(*_: object) -> int:
    raise AssertionError("nothing is started")


def text(directory: RunDirectory) -> str:
    return (directory.path / "operator.token").read_text()


def verified(directory: RunDirectory, now: float) -> VerifiedToken:
    keys = [authority.public_key for authority in AuthorityCertificate.load_all(directory.authority)]
    return verify(text(directory).removesuffix("\n"), keys, now)


def test_it_allows_everything_for_a_year(directory: RunDirectory) -> None:
    settings = provide(network(), directory, NOW)
    assert settings == SecuritySettings(
        authority=str(directory.authority / "authority.crt"),
        identity=str(directory.identities),
        token=str(directory.path / "operator.token"),
        requires_tokens=True,
    )
    found = verified(directory, NOW + VALIDITY_S)
    assert found.expires_at == NOW + VALIDITY_S
    for filter in ("#", "$SYS/#", "$gateway/#"):
        assert found.rights.may_read(filter, is_shared=True)
        assert found.rights.may_write(filter, retain=True)
    assert found.rights.may_be("anybody")
    assert (directory.path / "operator.token").stat().st_mode & 0o777 == 0o600


def test_a_network_that_requires_no_tokens_has_none(directory: RunDirectory) -> None:
    settings = provide(network(FILE.replace("required", "off")), directory, NOW)
    assert (settings.token, settings.requires_tokens) == ("", False)
    assert not (directory.path / "operator.token").exists()


def test_it_is_kept_until_little_time_is_left(directory: RunDirectory) -> None:
    provide(network(), directory, NOW)
    before = text(directory)
    provide(network(), directory, NOW + VALIDITY_S * 0.6)
    assert text(directory) == before
    provide(network(), directory, NOW + VALIDITY_S * 0.7)
    assert verified(directory, NOW).expires_at == int(NOW + VALIDITY_S * 0.7) + VALIDITY_S


@pytest.mark.parametrize("content", [b"", b"no token", b"\xff", None])
def test_one_that_is_not_usable_is_replaced(directory: RunDirectory, content: bytes | None) -> None:
    provide(network(), directory, NOW)
    file = directory.path / "operator.token"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    provide(network(), directory, NOW)
    assert verified(directory, NOW).expires_at == NOW + VALIDITY_S


@pytest.mark.parametrize(
    "block",
    [
        Block(BlockRights(read=("#",)), expires_at=int(NOW) + VALIDITY_S),
        Block(BlockRights(read=("#",), write=("#",), retain=True, share=True)),
    ],
)
def test_one_with_other_rights_is_replaced(directory: RunDirectory, block: Block) -> None:
    provide(network(), directory, NOW)
    signer = Authority.load(directory.authority)
    (directory.path / "operator.token").write_text(create(signer.key, block))
    provide(network(), directory, NOW)
    assert verified(directory, NOW).rights.may_write("$SYS/#", retain=True)


def test_without_the_key_of_the_authority_a_valid_one_is_kept(directory: RunDirectory) -> None:
    provide(network(), directory, NOW)
    before = text(directory)
    (directory.authority / "authority.key").unlink()
    provide(network(), directory, NOW + VALIDITY_S * 0.9)
    assert text(directory) == before
    (directory.path / "operator.token").unlink()
    with pytest.raises(ConfigError, match=r"authority\.key: a new operator's token is needed, and the key"):
        provide(network(), directory, NOW)


def test_the_next_authority_signs_another_one(directory: RunDirectory) -> None:
    provide(network(), directory, NOW)
    before = text(directory)
    for step in (RotationStep(1), RotationStep(2)):
        rotate(directory.authority, directory.identities, step, NOW)
        provide(network(), directory, NOW)
        assert (text(directory) != before) == (step == RotationStep(2))
    rotate(directory.authority, directory.identities, RotationStep(0), NOW)
    assert verified(directory, NOW).expires_at == NOW + VALIDITY_S


def test_nodes_require_tokens_and_gateways_have_it(directory: RunDirectory) -> None:
    made = up._with_security(network(), directory)
    file = str(directory.path / "operator.token")
    assert [(node.security.requires_tokens, node.security.token) for node in made.nodes] == [(True, "")]
    (gateway,) = made.gateways
    assert (gateway.security.requires_tokens, gateway.security.token) == (False, file)
    assert gateway.security.identity == ""


@pytest.mark.parametrize("wanted", ["required", "off"])
def test_commands_are_told_where_it_is(directory: RunDirectory, wanted: str) -> None:
    made = up._with_security(network(FILE.replace("required", wanted)), directory)
    bodies = Bodies(unused, unused, unused, unused)
    Launcher(made, "house.yaml", directory, bodies, lambda event: None)._write_state()
    run = directory.read()
    assert run is not None
    assert run.token == (str(directory.path / "operator.token") if wanted == "required" else None)
