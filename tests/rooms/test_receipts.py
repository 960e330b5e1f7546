"""The check of a stream of numbers: duplicates, reordering and losses are counted exactly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hbroker.sim.rooms.delivery_counters import ReceiveCounters


@given(numbers=st.lists(st.integers(0, 40), max_size=80))
def test_every_received_number_is_counted_once_in_its_kind(numbers: list[int]) -> None:
    receipts, seen, late = ReceiveCounters(), set[int](), 0
    for number in numbers:
        assert receipts.count(number) == (number not in seen)
        late += number not in seen and any(other > number for other in seen)
        seen.add(number)
    assert receipts.received == len(seen)
    assert receipts.duplicates == len(numbers) - len(seen)
    assert receipts.disordered == late
    assert receipts.lost_numbers(41) == set(range(41)) - seen
