"""The parts of a SUBACK (docs/protocol.md §6.1): each fits a datagram, together they say everything, in
any order. And which answer stands for a delegation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import PACKET_ROOM, Cut, unpack
from hbroker.protocol.subscriptions.client.subscription import SubackAnswer, SubackAnswerParts
from hbroker.protocol.subscriptions.owner.suback_packets import SubAcks

_subtrees = st.lists(st.text("abc/", max_size=300), unique=True, max_size=80)


def subacks(ack: pb.SubAck, cuts: list[Cut], held: list[str]) -> list[pb.SubAck]:
    return [unpack(packet).suback for packet in SubAcks().of(ack, cuts, held)]


@settings(max_examples=50, deadline=None)
@given(cuts=_subtrees, held=_subtrees, filter=st.text("abc/", max_size=700), data=st.data())
def test_every_part_fits_and_all_parts_together_are_complete(
    cuts: list[str], held: list[str], filter: str, data: st.DataObject
) -> None:
    named = [(cut, "node", ("10.0.0.1", 7000), epoch) for epoch, cut in enumerate(cuts, 1)]
    acks = subacks(pb.SubAck(filter=filter, responsible=True), named, held)
    assert all(ack.filter == filter and ack.responsible for ack in acks)
    assert all(ack.ByteSize() <= PACKET_ROOM + 32 for ack in acks)
    parts = SubackAnswerParts()
    order = data.draw(st.permutations(acks))
    assert [parts.add_part(ack) for ack in order] == [False] * (len(acks) - 1) + [True]
    assert parts.answer == SubackAnswer(set(held), {cut: epoch for epoch, cut in enumerate(cuts, 1)})


def test_parts_of_different_lists_do_not_complete_an_answer() -> None:
    def acks(held: list[str]) -> list[pb.SubAck]:
        return subacks(pb.SubAck(), [], held)

    before = acks([f"{'x' * 200}/{number}" for number in range(9)])
    after = acks([f"{'y' * 200}/{number}" for number in range(9)])
    assert len(before) == len(after) > 1
    parts = SubackAnswerParts()
    assert not any(parts.add_part(ack) for ack in [*before[:-1], *after[1:], *before[1:]])


@pytest.mark.parametrize(
    ("held", "cuts", "stands"),
    [
        (["a"], {}, True),
        ([""], {}, True),
        (["a/b"], {}, True),
        (["a/b/c"], {}, False),
        (["ab", "b"], {}, False),
        ([], {"a/b/c": 9}, False),
        (["a"], {"a/b": 6}, True),
        (["a"], {"a/b": 5}, False),
        (["a"], {"a/b": 4}, False),
        ([""], {"a": 9}, False),
        (["", "a/b"], {"a": 9}, True),
        (["a"], {"a/b/c": 9, "a/c": 9}, True),
    ],
)
def test_an_answer_stands_for_a_delegation_by_its_longest_subtree_around_it(
    held: list[str], cuts: dict[str, int], stands: bool
) -> None:
    assert SubackAnswer(set(held), cuts).accounts_for("a/b", 5) is stands


def test_an_unsolicited_suback_adds_cuts_and_removes_those_that_are_held_again() -> None:
    answer = SubackAnswer({"a"}, {"a/b": 1, "a/c": 2})
    assert answer.with_change(SubackAnswer({"a"}, {"a/d": 3})) == SubackAnswer(
        {"a"}, {"a/b": 1, "a/c": 2, "a/d": 3}
    )
    assert answer.with_change(SubackAnswer({"a", "a/b"})) == SubackAnswer({"a", "a/b"}, {"a/c": 2})
    assert answer.with_change(SubackAnswer(set(), {"a": 4})) == SubackAnswer(
        set(), {"a": 4, "a/b": 1, "a/c": 2}
    )
