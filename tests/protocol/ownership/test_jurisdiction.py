"""The jurisdiction of a node, checked for every topic of a small alphabet."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker._native import filter_touches, topic_matches
from hbroker.config import LeasePolicy
from hbroker.protocol.ownership.cut_tree import LONGEST_FILTER, MOST_ANSWERS, CutTree
from hbroker.protocol.ownership.jurisdiction import Delegation, Grant, Jurisdiction
from hbroker.subtree import is_within
from tests.protocol.fake_network import Network
from tests.protocol.fakes import FakeCore

FRESH = "z"
"""A level that no subtree or filter names. Only wildcards match it."""
LEVELS = ("a", "b", FRESH, "")
TOPICS = [topic for depth in range(1, 6) for topic in map("/".join, product(LEVELS, repeat=depth)) if topic]

levels = st.sampled_from(["a", "b"])
subtrees = st.lists(levels, max_size=3).map("/".join)
filters = st.builds(
    lambda given, rest: "/".join([*given, *rest]) or "#",
    st.lists(st.sampled_from(["a", "b", "+", ""]), max_size=3),
    st.sampled_from([[], ["#"]]),
)


def jurisdiction(*cuts: str, subtree: str = "") -> Jurisdiction:
    held = Jurisdiction(FakeCore(Network(), ("10.0.0.1", 1), 1))
    held.set_grant(Grant(subtree, 7, None, True, None))
    for cut in cuts:
        held.delegate(delegation(cut))
    return held


def delegation(subtree: str, node: str = "n", link: int | None = 1) -> Delegation:
    return Delegation(subtree, node, ("10.0.0.2", 2), 1, 8, LeasePolicy.FENCE, link, 0)


@given(filter=filters, subtree=subtrees, cut_levels=st.lists(levels, min_size=1, max_size=2))
def test_a_cut_covers_a_filter_exactly_if_it_holds_every_matching_topic(
    filter: str, subtree: str, cut_levels: list[str]
) -> None:
    cut = "/".join([*levels_of(subtree), *cut_levels])
    matched = [t for t in TOPICS if is_within(t, subtree) and topic_matches(filter, t)]
    if matched:
        assert tree(cut).covers(filter, subtree) == all(is_within(t, cut) for t in matched)


@given(steps=st.lists(st.tuples(st.booleans(), subtrees.filter(bool)), max_size=12), filter=filters)
def test_cuts_are_found_by_filter_and_by_the_subtree_around_them(
    steps: list[tuple[bool, str]], filter: str
) -> None:
    found = tree("$SYS/a")
    model = {"$SYS/a"}
    for is_added, subtree in steps:
        if is_added:
            found.put(delegation(subtree))
            model.add(subtree)
        else:
            assert (found.remove(subtree) is not None) == (subtree in model)
            model.discard(subtree)
        assert sorted(d.subtree for d in found) == sorted(model)
        assert sorted(d.subtree for d in found.touched(filter)) == sorted(
            subtree for subtree in model if filter_touches(filter, subtree)
        )
        assert sorted(d.subtree for d in found.touched(found.canonical_filter(filter))) == sorted(
            d.subtree for d in found.touched(filter)
        )
        for around in ("", "a", "a/b", "$SYS"):
            below = sorted(each for each in model if is_within(each, around))
            assert sorted(d.subtree for d in found.cuts_below(around)) == below
            assert found.count_below(around) == len(below)
        assert found.deepest == max((len(levels_of(each)) for each in model), default=0)


def test_the_cuts_that_a_filter_touches_are_cached_until_a_cut_changes() -> None:
    held = jurisdiction(*(f"home/{number}" for number in range(1_000)))
    first = held.touched_cuts("#")
    assert (len(first), held.touched_cuts("#") is first) == (1_000, True)
    held.delegate(delegation("home/x"))
    assert len(held.touched_cuts("#")) == 1_001
    held.take_back("home/x")
    assert held.touched_cuts("#") == first
    for number in range(5_000):
        held.touched_cuts(f"+/{number}")
    assert len(held._touched._answers) <= MOST_ANSWERS
    long = "+/" * LONGEST_FILTER + "#"
    assert len(held.touched_cuts(long)) == 1_000
    assert set(held._touched._answers) <= {
        ("#", None),
        ("+/+/#", None),
        *((f"+/{n}", None) for n in range(1_000)),
    } | {("+/\0", None)}


def test_filters_that_differ_only_in_unknown_levels_share_a_cache_entry() -> None:
    held = jurisdiction(*(f"home{number}" for number in range(1_000)))
    answers = {id(held.touched_cuts(f"+/{number}/x")) for number in range(5_000)}
    assert len(answers) == 1
    assert len(held.touched_cuts("+/x")) == 1_000
    assert {id(held.touched_cuts(f"no{number}/#")) for number in range(5_000)} == {
        id(held.touched_cuts("no/#"))
    }
    deep = "/".join("abcdefgh" * LONGEST_FILTER)
    held.delegate(delegation(deep))
    held.touched_cuts(deep)
    assert (deep, None) not in held._touched._answers, "what is long is not kept"


def tree(*subtrees: str) -> CutTree[Delegation]:
    cuts: CutTree[Delegation] = CutTree()
    for subtree in subtrees:
        cuts.put(delegation(subtree))
    return cuts


def levels_of(subtree: str) -> list[str]:
    return subtree.split("/") if subtree else []


@given(filter=filters, cuts=st.lists(subtrees.filter(bool), max_size=4, unique=True))
def test_a_node_is_responsible_exactly_if_it_can_own_a_matching_topic(filter: str, cuts: list[str]) -> None:
    held = jurisdiction(*cuts)
    owned = [t for t in TOPICS if isinstance(held.lookup(t), Grant) and topic_matches(filter, t)]
    assert (held.responsible_grant(filter) is not None) == bool(owned)


@given(cuts=st.lists(subtrees.filter(bool), max_size=5, unique=True), topic=st.sampled_from(TOPICS))
def test_the_longest_prefix_decides_about_a_topic(cuts: list[str], topic: str) -> None:
    decider = jurisdiction(*cuts).lookup(topic)
    assert decider is not None
    assert decider.subtree == max((c for c in ["", *cuts] if is_within(topic, c)), key=len)


def test_a_zone_with_many_cuts_is_narrowed_to_a_scope_with_few() -> None:
    held = jurisdiction(*(f"floor/room{i}" for i in range(1_000)), "hall/door")
    grant = held.grant_of("")
    assert grant is not None
    assert held.zone("floor/lobby/lamp", grant).scope == "floor/lobby"
    assert held.zone("garden/gate", grant).scope == "garden"
    hall = held.zone("hall/bell", grant)
    assert (hall.scope, [cut.subtree for cut in hall.cuts]) == ("hall", ["hall/door"])
    assert len(held.zone("floor", grant).cuts) == 16


def test_a_zone_names_every_cut_below_its_scope_or_is_narrowed() -> None:
    cuts = [f"a/{i}" for i in range(16)]
    held = jurisdiction(*cuts, subtree="a")
    grant = held.grant_of("a")
    assert grant is not None
    told = held.zone("a/x/y", grant)
    assert (told.scope, {cut.subtree for cut in told.cuts}) == ("a", set(cuts))
    held.delegate(delegation("a/16"))
    assert held.zone("a/x/y", grant).scope == "a/x"


def test_the_serial_rises_with_every_change_of_the_cuts() -> None:
    held = jurisdiction(subtree="a")
    grant = held.grant_of("a")
    assert grant is not None
    serials = [grant.serial]
    held.delegate(delegation("a/b"))
    serials.append(grant.serial)
    held.take_back("a/b")
    serials.append(grant.serial)
    held.delegate(delegation("b"))
    assert [*serials, grant.serial] == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("topic", "subtree", "within"),
    [("a", "a", True), ("a/b", "a", True), ("ab", "a", False), ("$SYS/x", "", True), ("a", "a/b", False)],
)
def test_a_subtree_holds_only_whole_levels(topic: str, subtree: str, within: bool) -> None:
    assert is_within(topic, subtree) is within


def test_a_lookup_of_a_topic_with_very_many_levels_stops_at_the_known_ones() -> None:
    assert isinstance(jurisdiction("a/b").lookup("/" * 60_000), Grant)


def test_a_request_from_a_parent_is_forwarded_only_below_that_parents_grants() -> None:
    held = Jurisdiction(FakeCore(Network(), ("10.0.0.1", 1), 1))
    held.set_grant(Grant("a", 7, 1, True, None))
    held.set_grant(Grant("b", 7, 2, True, None))
    held.delegate(delegation("a/x"))
    held.delegate(delegation("b/x"))
    assert [d.subtree for d in held.touched_cuts("#", parent_link=2)] == ["b/x"]
    assert [d.subtree for d in held.touched_cuts("#")] == ["a/x", "b/x"]


def test_a_cut_of_a_lost_subtree_is_not_named() -> None:
    held = jurisdiction("a/b", subtree="a")
    assert [d.subtree for d in held.touched_cuts("a/+/c")] == ["a/b"]
    held.remove_grant("a")
    assert not held.touched_cuts("a/+/c")


def test_a_cut_of_a_lost_inner_subtree_is_not_named_by_the_holder_of_the_outer_one() -> None:
    held = jurisdiction("a/b", "a/b/c/d", subtree="")
    held.set_grant(Grant("a/b/c", 7, 2, True, None))
    assert [d.subtree for d in held.touched_cuts("#")] == ["a/b", "a/b/c/d"]
    held.remove_grant("a/b/c")
    assert [d.subtree for d in held.touched_cuts("#")] == ["a/b"]


def test_a_smaller_subtree_that_another_node_granted_is_apart_from_the_outer_one() -> None:
    held = jurisdiction("a/b", subtree="a")
    for subtree in ("a/b/c", "a/b/c/d/e", "ab"):
        held.set_grant(Grant(subtree, 7, 5, serving=True, until=None))
    held.delegate(delegation("a/b/c/d"))
    assert held.subtrees_granted_below("a") == ["a/b/c", "a/b/c/d/e"]
    assert held.subtrees_granted_below("a/b/c") == ["a/b/c/d/e"]
    assert [d.subtree for d in held.cuts_moving_with("a")] == ["a/b"]
    assert held.grants_left_within("a") == [], "what others hold lies between"
    held.take_back("a/b")
    assert [grant.subtree for grant in held.grants_left_within("a")] == ["a/b/c"]


def test_the_held_list_names_the_served_subtrees_that_the_filter_touches() -> None:
    held = jurisdiction("a/b", subtree="a")
    held.set_grant(Grant("a/b/c", 7, 2, True, None))
    held.set_grant(Grant("b", 7, 2, False, None))
    assert held.served_subtrees("#") == ["a", "a/b/c"]
    assert held.served_subtrees("a/+") == ["a"]
