"""Rights: each block narrows them, and equal rights have equal keys."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker._native import topic_matches
from hbroker.rights.rights import ALL_RIGHTS, BlockRights, Rights
from tests.rights.examples import RIGHTS
from tests.topics import EVERY_TOPIC, FILTERS, TOPICS

CHAINS = st.lists(RIGHTS, min_size=1, max_size=4)


def test_a_topic_is_written_where_a_filter_of_each_block_matches() -> None:
    rights = Rights((BlockRights(write=("home/#", "cellar/+")), BlockRights(write=("+/lamp",))))
    assert rights.may_write("home/lamp", retain=False)
    assert rights.may_write("cellar/lamp", retain=False)
    assert not rights.may_write("home/oven", retain=False)
    assert not rights.may_write("attic/lamp", retain=False)
    assert not rights.may_read("home/lamp", is_shared=False)


def test_one_filter_has_to_cover_the_whole_of_a_subscription() -> None:
    rights = Rights((BlockRights(read=("home/+", "home/+/#", "attic/#")),))
    assert rights.may_read("home/+/set", is_shared=False)
    assert rights.may_read("attic", is_shared=False)
    assert not rights.may_read("home/#", is_shared=False)
    assert not rights.may_read("+/lamp", is_shared=False)
    assert not rights.may_read("#", is_shared=False)


def test_a_wildcard_at_the_first_level_gives_no_right_to_topics_with_a_dollar_sign() -> None:
    """MQTT 5 §4.7.2."""
    rights = Rights((BlockRights(("#", "+/#"), ("#", "+/x")),))
    assert not rights.may_read("$SYS/#", is_shared=False)
    assert not rights.may_write("$SYS/x", retain=False)
    named = Rights((BlockRights(("$SYS/#",)),))
    assert named.may_read("$SYS/nodes/+", is_shared=False)


@pytest.mark.parametrize("others", [(), (BlockRights(("#",), ("#",)),)])
def test_messages_are_retained_and_groups_joined_if_every_block_says_so(
    others: tuple[BlockRights, ...],
) -> None:
    rights = Rights((BlockRights(("#",), ("#",), retain=True, share=True), *others))
    assert rights.may_write("a", retain=True) == rights.may_read("a", is_shared=True) == (not others)
    assert rights.may_write("a", retain=False)
    assert rights.may_read("a", is_shared=False)


def test_a_client_has_the_id_that_every_block_names() -> None:
    block = BlockRights(("#",))
    assert Rights((block,)).may_be("anyone")
    assert Rights((block,), ("oven", "oven")).may_be("oven")
    assert not Rights((block,), ("oven",)).may_be("lamp")
    assert not any(Rights((block,), ("oven", "lamp")).may_be(name) for name in ("oven", "lamp", ""))


def test_a_node_may_do_everything_and_is_told_apart_from_a_client() -> None:
    assert ALL_RIGHTS.may_write("$SYS/x", retain=True)
    assert ALL_RIGHTS.may_read("$SYS/#", is_shared=True)
    assert ALL_RIGHTS.may_be("anyone")
    assert ALL_RIGHTS.key == 0


def test_there_are_no_rights_without_blocks_but_those_of_a_node() -> None:
    with pytest.raises(ValueError, match="have blocks"):
        Rights(())
    with pytest.raises(ValueError, match="have blocks"):
        Rights((BlockRights(("a",)),), is_unlimited=True)


@given(CHAINS, RIGHTS, FILTERS, TOPICS, st.booleans())
def test_another_block_never_adds_a_right(
    chain: list[BlockRights], block: BlockRights, filter: str, topic: str, flag: bool
) -> None:
    parent, child = Rights(tuple(chain)), Rights((*chain, block))
    assert child.may_read(filter, flag) <= parent.may_read(filter, flag)
    assert child.may_write(topic, flag) <= parent.may_write(topic, flag)
    assert child.may_write(topic, flag) <= Rights((block,)).may_write(topic, flag)


@given(RIGHTS, FILTERS)
def test_all_that_a_permitted_subscription_gets_may_be_read(rights: BlockRights, filter: str) -> None:
    if Rights((rights,)).may_read(filter, is_shared=False):
        for topic in EVERY_TOPIC:
            if topic_matches(filter, topic):
                assert any(topic_matches(wide, topic) for wide in rights.read)


@given(CHAINS, st.lists(st.sampled_from("abc"), max_size=3), st.randoms(use_true_random=False))
def test_equal_rights_have_equal_keys_in_whatever_order_they_were_named(
    chain: list[BlockRights], clients: list[str], chance: random.Random
) -> None:
    def shuffled(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(chance.sample([*values, *values], 2 * len(values)))

    others = [BlockRights(shuffled(b.read), shuffled(b.write), b.retain, b.share) for b in [*chain, chain[0]]]
    chance.shuffle(others)
    one, other = Rights(tuple(chain), tuple(clients)), Rights(tuple(others), shuffled(tuple(clients)))
    assert one == other
    assert one.key == other.key
    assert 0 < one.key < 1 << 64


@given(CHAINS, CHAINS)
def test_different_rights_have_different_keys(one: list[BlockRights], other: list[BlockRights]) -> None:
    assert (Rights(tuple(one)).key == Rights(tuple(other)).key) == (set(one) == set(other))


def test_the_key_of_rights_stays_the_same_from_release_to_release() -> None:
    block = BlockRights(("home/#",), ("home/ä",), retain=True)
    assert Rights((block,), ("oven",)).key == 10_918_589_213_812_614_220
