"""Tokens that hbroker makes: what they say, how they are narrowed, and when they are valid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker.errors import LocalError
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights, Rights
from hbroker.rights.token import attenuate, create, inspect, verify
from hbroker.rights.verified import InvalidToken
from tests.rights.examples import (
    AUTHORITIES,
    DAY_S,
    HOME,
    KEY,
    NOW,
    OTHER_KEY,
    RIGHTS,
    TEXTS,
    TOKEN,
    appended,
    biscuit,
    raw,
)
from tests.topics import FILTERS, TOPICS


def narrowed(block: Block, token: str = TOKEN) -> str:
    return attenuate(token, block, AUTHORITIES, NOW)


def test_a_token_says_what_it_was_made_for() -> None:
    assert HOME.rights is not None
    for token in (TOKEN, raw(TOKEN)):
        found = verify(token, AUTHORITIES, NOW)
        assert found.rights == Rights((HOME.rights,))
        assert found.expires_at == NOW + DAY_S
        assert [len(each) for each in found.revocation_ids] == [64]


def test_each_block_narrows_a_token() -> None:
    middle = narrowed(Block(BlockRights(("home/kitchen/#",), ("home/kitchen/set",)), expires_at=NOW + 100))
    last = narrowed(Block(client="oven"), middle)
    found = verify(last, AUTHORITIES, NOW)
    assert found.expires_at == NOW + 100
    assert found.rights.clients == ("oven",)
    assert found.rights.may_read("home/kitchen/+", is_shared=False)
    assert not found.rights.may_read("home/kitchen/+", is_shared=True)
    assert not found.rights.may_read("home/attic", is_shared=False)
    assert found.rights.may_write("home/kitchen/set", retain=False)
    assert not found.rights.may_write("home/kitchen/set", retain=True)
    parents = [verify(each, AUTHORITIES, NOW).revocation_ids for each in (TOKEN, middle)]
    assert parents == [found.revocation_ids[:1], found.revocation_ids[:2]]


def test_only_the_authority_names_the_client_that_a_holder_is() -> None:
    """Anybody can append a client id."""
    appended = verify(narrowed(Block(client="oven")), AUTHORITIES, NOW).rights
    made = verify(create(KEY, Block(HOME.rights, "oven")), AUTHORITIES, NOW).rights
    assert (appended.clients, appended.named_client) == (("oven",), "")
    assert (made.clients, made.named_client) == (("oven",), "oven")
    assert appended.key != made.key


def test_what_is_inspected_is_what_was_written() -> None:
    block = Block(BlockRights(("home/#",)), "oven", NOW)
    found = inspect(narrowed(block))
    assert found.blocks == (HOME, block)
    assert found.expires_at == NOW
    assert inspect(raw(TOKEN)).blocks == (HOME,)


@given(st.builds(Block, RIGHTS, st.none() | TEXTS, st.none() | st.integers(0, 253_402_300_799)))
def test_what_was_created_is_read_again_as_biscuit_prints_it(block: Block) -> None:
    token = create(KEY, block)
    assert inspect(token).blocks == (block,)
    assert biscuit(token).block_source(0) == block.to_datalog()
    assert biscuit(token).revocation_ids == [each.hex() for each in inspect(token).revocation_ids]


@pytest.mark.parametrize("seconds", [0, 127, 128, 16_384, 2_097_152, 268_435_456, 34_359_738_368])
def test_a_time_of_any_length_is_read_again(seconds: int) -> None:
    assert inspect(create(KEY, Block(BlockRights(("a",)), expires_at=seconds))).expires_at == seconds


def test_filters_that_biscuit_has_numbers_for_are_read_again() -> None:
    """Its default symbols: https://doc.biscuitsec.org/reference/specifications"""
    words = ("read", "write", "time", "admin", "client", "query", "nonce", "domain", "group", "member")
    assert inspect(create(KEY, Block(BlockRights(words)))).blocks[0].rights == BlockRights(words)


@pytest.mark.parametrize(
    ("token", "now", "reason"),
    [
        (TOKEN, NOW + DAY_S + 1, "expired at 2027-01-16T08:00:00Z"),
        (TOKEN, NOW + DAY_S + 0.5, "expired at"),
        (create(OTHER_KEY, HOME), NOW, "another network"),
        ("", NOW, "not complete"),
        (b"", NOW, "not complete"),
        (TOKEN + "\n", NOW, "base64"),
        (TOKEN.rstrip("=") + "é", NOW, "base64"),
        ("\ud800" * 4, NOW, "base64"),
        (TOKEN[:-4], NOW, "not complete"),
        ("A" * 8_192, NOW, "over 4096 bytes"),
        (b"A" * 4_097, NOW, "over 4096 bytes"),
    ],
)
def test_a_token_that_is_not_valid_is_refused_with_the_reason(
    token: str | bytes, now: float, reason: str
) -> None:
    with pytest.raises(InvalidToken, match=reason):
        verify(token, AUTHORITIES, now)


def test_a_token_is_valid_in_its_last_second() -> None:
    verify(TOKEN, AUTHORITIES, NOW + DAY_S)
    forever = create(KEY, Block(BlockRights(("a",))))
    assert verify(forever, AUTHORITIES, 1e15).expires_at is None


def test_any_authority_that_is_believed_may_have_signed() -> None:
    both = [OTHER_KEY.public_key(), *AUTHORITIES]
    assert verify(TOKEN, both, NOW) == verify(TOKEN, AUTHORITIES, NOW)
    with pytest.raises(InvalidToken, match="another network"):
        verify(TOKEN, [], NOW)


def test_each_token_has_one_text() -> None:
    tokens = [create(KEY, Block(BlockRights(("a" * length,)))) for length in (1, 2, 3)]
    assert {token.count("=") for token in tokens} == {0, 1, 2}
    for token in tokens:
        assert verify(token, AUTHORITIES, NOW) == verify(raw(token), AUTHORITIES, NOW)
        for other in (f" {token}", f"{token}=", token.replace("E", "E\n", 1)):
            with pytest.raises(InvalidToken, match="base64"):
                verify(other, AUTHORITIES, NOW)


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        (Block(), "nothing is said"),
        (
            Block(BlockRights(("#", "home/a"), ("attic",))),
            "read # or to write attic: it can only be narrowed",
        ),
        (Block(BlockRights((), ("home/#",))), "to write home/#"),
        (Block(expires_at=NOW + DAY_S + 1), "expires at .* already"),
        (Block(client="lamp"), "be the client lamp"),
        (Block(BlockRights(("home/#",), share=True)), "join shared groups"),
        (Block(BlockRights(("home/#",), retain=True)), "retain messages"),
    ],
)
def test_a_token_is_not_appended_to_if_the_block_asks_for_more(block: Block, fault: str) -> None:
    token = narrowed(Block(BlockRights(("home/#",), ("home/+/set",)), client="oven"))
    with pytest.raises(LocalError, match=fault):
        attenuate(token, block, AUTHORITIES, NOW)


def test_a_token_has_bounds() -> None:
    with pytest.raises(LocalError, match="name a filter"):
        create(KEY, Block(client="oven"))
    with pytest.raises(LocalError, match="bytes, over 4096"):
        create(KEY, Block(BlockRights(tuple(f"{n:0100}" for n in range(40)))))
    token = TOKEN
    for _ in range(15):
        token = narrowed(Block(client="oven"), token)
    assert len(verify(token, AUTHORITIES, NOW).revocation_ids) == 16
    with pytest.raises(LocalError, match="16 blocks already"):
        narrowed(Block(client="oven"), token)


def test_a_token_that_has_expired_is_not_appended_to() -> None:
    with pytest.raises(InvalidToken, match="expired"):
        attenuate(TOKEN, Block(client="oven"), AUTHORITIES, NOW + 2 * DAY_S)


@given(RIGHTS, st.none() | st.integers(0, 2 * DAY_S), FILTERS, TOPICS, st.booleans())
def test_a_block_that_asks_for_more_gives_no_right(
    rights: BlockRights, lasts: int | None, filter: str, topic: str, flag: bool
) -> None:
    """A holder can append any block, because he needs not use `attenuate`."""
    parent = verify(TOKEN, AUTHORITIES, NOW)
    block = Block(rights, expires_at=None if lasts is None else NOW + lasts)
    child = verify(appended(block), AUTHORITIES, NOW)
    assert child.rights.may_read(filter, flag) <= parent.rights.may_read(filter, flag)
    assert child.rights.may_write(topic, flag) <= parent.rights.may_write(topic, flag)
    assert parent.expires_at is not None
    assert child.expires_at is not None
    assert child.expires_at <= parent.expires_at


@given(st.lists(RIGHTS, min_size=2, max_size=4), FILTERS, TOPICS, st.booleans())
def test_a_chain_of_attenuations_only_loses_rights(
    chain: list[BlockRights], filter: str, topic: str, flag: bool
) -> None:
    token = create(KEY, Block(chain[0]))
    for rights in chain[1:]:
        before = verify(token, AUTHORITIES, NOW).rights
        try:
            token = attenuate(token, Block(rights), AUTHORITIES, NOW)
        except LocalError:
            continue
        after = verify(token, AUTHORITIES, NOW).rights
        assert after.may_read(filter, flag) <= before.may_read(filter, flag)
        assert after.may_write(topic, flag) <= before.may_write(topic, flag)
