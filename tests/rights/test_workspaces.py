"""Tokens of workspaces: their names, and that no block that somebody appends leads out of one."""

from __future__ import annotations

import pytest
from biscuit_auth import BlockBuilder
from hypothesis import given

from hbroker.errors import LocalError
from hbroker.rights.block import Block
from hbroker.rights.rights import ALL_RIGHTS, BlockRights, Rights
from hbroker.rights.token import attenuate, create, inspect, verify
from hbroker.rights.verified import InvalidToken
from hbroker.workspace import Workspace
from tests.rights.examples import AUTHORITIES, KEY, NOW, TOKEN, biscuit, made
from tests.topics import FILTERS

ALL = BlockRights(("#",), ("home/#",), retain=True)
ACME = create(KEY, Block(ALL, workspace="acme"))


def rights_of(token: str | bytes) -> Rights:
    return verify(token, AUTHORITIES, NOW).rights


def test_the_names_of_a_token_are_those_of_its_workspace() -> None:
    rights = rights_of(ACME)
    assert rights.workspace == "acme"
    assert rights.blocks == (BlockRights(("$workspace/acme/#",), ("$workspace/acme/home/#",), retain=True),)
    assert rights.may_read("$workspace/acme/+/x", is_shared=False)
    assert rights.may_write("$workspace/acme/home/oven", retain=True)
    for raw in ("x", "#", "$workspace/other/x", "$workspace/acm/x", "$workspace/#", "$SYS/x", "$gateway/x"):
        assert not rights.may_read(raw, is_shared=False)
        assert not rights.may_write(raw, retain=False)
    assert inspect(ACME).blocks == (Block(ALL, workspace="acme"),)


def test_rights_without_a_workspace_are_in_none() -> None:
    everything = rights_of(create(KEY, Block(BlockRights(("#", "+/#"), ("#",)))))
    assert not everything.may_read("$workspace/acme/x", is_shared=False)
    assert not everything.may_write("$workspace/acme/x", retain=False)
    assert everything.workspace == ""


@given(FILTERS.filter(lambda filter: not filter.startswith("$")))
def test_a_block_that_is_appended_has_the_names_of_the_workspace(filter: str) -> None:
    token = create(KEY, Block(BlockRights(("#",)), workspace="acme"))
    for named in (None, "acme"):
        narrow = rights_of(attenuate(token, Block(BlockRights((filter,)), workspace=named), AUTHORITIES, NOW))
        assert narrow.workspace == "acme"
        assert narrow.may_read(f"$workspace/acme/{filter}", is_shared=False)
        assert not narrow.may_read(filter, is_shared=False)


def test_a_block_of_another_workspace_is_not_appended() -> None:
    for token, named in ((ACME, "other"), (TOKEN, "acme")):
        with pytest.raises(LocalError, match="its first block decides that"):
            attenuate(token, Block(BlockRights(("home/x",)), workspace=named), AUTHORITIES, NOW)


@pytest.mark.parametrize(
    "datalog",
    [
        'workspace("other"); read("#")',
        'workspace("other")',
        'workspace("")',
        'workspace("Acme")',
        'workspace("acme/x")',
        'workspace("acme"); workspace("acme")',
        'workspace("acme", "other")',
        'read("$workspace/other/#")',
        'read("$SYS/#")',
        'write("$gateway/#")',
    ],
)
def test_a_block_that_leads_out_of_a_workspace_makes_the_token_invalid(datalog: str) -> None:
    token = biscuit(ACME).append(BlockBuilder(datalog)).to_base64()
    with pytest.raises(InvalidToken, match="not a token of hbroker"):
        rights_of(token)


@pytest.mark.parametrize(
    "datalog", ['workspace("acme")', 'workspace("acme"); read("#")', 'client("$workspace/acme/oven")']
)
def test_no_block_leads_into_a_workspace(datalog: str) -> None:
    """Otherwise who has any token could say that he is a client of the workspace."""
    token = biscuit(TOKEN).append(BlockBuilder(datalog)).to_base64()
    with pytest.raises(InvalidToken, match="not a token of hbroker"):
        rights_of(token)


@pytest.mark.parametrize("datalog", ['workspace("acme")', 'workspace("acme"); read("$SYS/#")'])
def test_a_first_block_has_rights_that_its_workspace_can_have(datalog: str) -> None:
    with pytest.raises(InvalidToken, match="not a token of hbroker"):
        rights_of(made(datalog))


def test_a_token_is_not_made_for_what_no_workspace_has() -> None:
    for block in (
        Block(BlockRights(("$SYS/#",)), workspace="acme"),
        Block(BlockRights(("a",)), "$workspace/acme/oven"),
    ):
        with pytest.raises(LocalError, match=r"begin"):
            create(KEY, block)
    with pytest.raises(LocalError, match="no name of a workspace"):
        Block(BlockRights(("a",)), workspace="A")


def test_a_client_id_is_that_of_the_workspace() -> None:
    oven = rights_of(create(KEY, Block(ALL, "oven", workspace="acme")))
    assert oven.clients == ("$workspace/acme/oven",)
    assert oven.may_be("$workspace/acme/oven")
    for other in ("oven", "$workspace/other/oven", "$workspace/acme/lamp"):
        assert not oven.may_be(other)
    anybody = rights_of(ACME)
    assert anybody.may_be("$workspace/acme/lamp")
    assert not anybody.may_be("lamp")
    assert not anybody.may_be("$workspace/other/lamp")


def test_who_may_read_a_workspace_may_have_a_client_there() -> None:
    """A gateway has clients in all."""
    outside = rights_of(create(KEY, Block(BlockRights(("#",), ("#",)))))
    gateway = rights_of(create(KEY, Block(BlockRights(("#", "$workspace/#"), ("#", "$workspace/#")))))
    for rights, may in ((outside, False), (gateway, True), (ALL_RIGHTS, True)):
        assert rights.may_be("$workspace/acme/oven") == may
        assert rights.may_be("oven")


def test_equal_filters_of_two_workspaces_are_different_rights() -> None:
    keys = {rights_of(create(KEY, Block(ALL, workspace=name))).key for name in (None, "acme", "other")}
    assert len(keys) == 3
    inside = Rights((BlockRights(("$workspace/acme/#",)),), workspace="acme")
    assert inside.key != Rights((BlockRights(("$workspace/acme/#",)),)).key


def test_what_a_token_cannot_do_is_said_with_the_names_of_the_workspace() -> None:
    narrow = attenuate(ACME, Block(BlockRights(("home/#",)), "oven"), AUTHORITIES, NOW)
    with pytest.raises(LocalError, match="does not allow to read attic or to be the client lamp"):
        attenuate(narrow, Block(BlockRights(("attic",)), "lamp"), AUTHORITIES, NOW)
    assert inspect(narrow).workspace == Workspace("acme")
