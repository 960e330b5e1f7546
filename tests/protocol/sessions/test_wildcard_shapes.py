"""The bounds on what the wildcards of filters may cost a look-up (§6.3)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice, product

import pytest

from hbroker.protocol.packets import Reason
from hbroker.protocol.sessions import wildcard_shapes
from hbroker.protocol.sessions.wildcard_shapes import WildcardShapes, is_too_deep, shape_of
from tests.protocol.sole_node import SoleNode


def overlapping(levels: int) -> Iterator[str]:
    """All filters that differ only in which levels are `+`."""
    return ("/".join(filter) + "/#" for filter in product("a+", repeat=levels))


def unusual_filters(count: int, first: int = 0) -> list[str]:
    """Filters of this many shapes that are not ordinary."""
    pluses = islice(combinations(range(30), 3), first, first + count)
    return ["/".join("+" if at in chosen else "a" for at in range(30)) for chosen in pluses]


@pytest.mark.parametrize(
    ("filter", "shape"),
    [
        ("#", None),
        ("home/kitchen/#", None),
        ("a/" * 1_000 + "#", None),
        ("+/a/+/#", None),
        ("a/" * 15 + "+", None),
        ("a/" * 16 + "+", (16,)),
        ("+/+/+", (0, 1, 2)),
        ("+/+/+/#", (0, 1, 2)),
        ("+/a/+/a/+/a/a", (0, 2, 4)),
    ],
)
def test_the_shape_of_a_filter_is_the_set_of_its_plus_levels(
    filter: str, shape: tuple[int, ...] | None
) -> None:
    assert shape_of(filter) == shape


def test_there_are_137_ordinary_shapes() -> None:
    levels = range(wildcard_shapes.ORDINARY_LEVELS)
    counts = range(wildcard_shapes.ORDINARY_PLUSES + 1)
    assert sum(len(list(combinations(levels, many))) for many in counts) == 137


def test_the_levels_of_a_filter_with_a_plus_are_bounded() -> None:
    most = "+" + "/a" * (wildcard_shapes.MOST_LEVELS - 1)
    assert not is_too_deep(most)
    assert is_too_deep(most + "/a")
    assert not is_too_deep("a/" * 1_000 + "#")
    node = SoleNode()
    link = node.link_up(1)
    assert node.subscribe(link, most).active
    assert node.subscribe(link, most + "/#").reason == Reason.REASON_QUOTA_EXCEEDED


def test_the_shapes_of_one_session_that_are_not_ordinary_are_bounded() -> None:
    node = SoleNode()
    link = node.link_up(1)
    acks = [node.subscribe(link, filter) for filter in overlapping(10)]
    taken = [ack for ack in acks if ack.active]
    assert {ack.reason for ack in acks if not ack.active} == {Reason.REASON_QUOTA_EXCEEDED}
    ordinary = 1 + 10 + 45
    assert len(taken) == ordinary + wildcard_shapes.MOST_OF_A_SESSION
    again = next(ack.filter for ack in taken if shape_of(ack.filter) is not None)
    assert node.subscribe(link, again).active, "it is there already"


def test_the_shapes_of_all_sessions_are_bounded_and_ordinary_filters_are_always_accepted() -> None:
    node = SoleNode()
    each = wildcard_shapes.MOST_OF_A_SESSION
    sessions = range(1, wildcard_shapes.MOST_OF_A_NODE // each + 1)
    links = {session: node.link_up(session) for session in sessions}
    for session, link in links.items():
        assert all(node.subscribe(link, filter).active for filter in unusual_filters(each, session * each))
    link = node.link_up(1_000)
    assert node.subscribe(link, unusual_filters(1)[0]).reason == Reason.REASON_QUOTA_EXCEEDED
    assert node.subscribe(link, "+/a/+/#").active
    assert node.subscribe(link, unusual_filters(1, each)[0]).active, "another session has the shape already"
    node.link_down(links[1], 1)
    assert node.subscribe(link, unusual_filters(1)[0]).active, "sessions that end take theirs along"


def test_a_removed_filter_makes_room_for_another_shape() -> None:
    bounded = WildcardShapes(each=2, most=3)
    first, second, third, fourth = unusual_filters(4)
    for session, filter in ((1, first), (1, first), (1, second), (2, third)):
        assert bounded.has_room(session, filter)
        bounded.add(session, filter)
    assert not bounded.has_room(1, third), "the session has two"
    assert bounded.has_room(2, second)
    assert not bounded.has_room(2, fourth), "all have three"
    bounded.remove(1, first)
    assert not bounded.has_room(2, fourth), "there is another of this shape"
    bounded.remove(1, first)
    assert bounded.has_room(2, fourth)
    for session, filter in ((1, second), (2, third)):
        bounded.remove(session, filter)
    assert not bounded._all
    assert not bounded._of_session
