"""The counters are exact, whatever happens to messages. The histogram is as exact as documented."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from hbroker.sim.rooms.delivery_counters import DeliveryCounters
from hbroker.sim.rooms.latency import Histogram
from hbroker.sim.rooms.plan import Client, Plan, Stream
from hbroker.sim.rooms.scenario.settings import Scenario
from hbroker.sim.rooms.stamp import STAMP_BYTES, Stamp, add_stamp, read_stamp

RUN = 7
RECEIVERS = (0, 1)


def _counters(qos: int, subscribed: int = 2) -> tuple[DeliveryCounters, Stream]:
    stream = Stream(0, "home/x", qos, False, "x")
    clients = tuple(
        Client(number, f"c{number}", "watcher", "", True, False, lambda: iter(()), qos=subscribed)
        for number in RECEIVERS
    )
    plan = Plan(Scenario("s", "home", {}, ()), clients, (stream,), (RECEIVERS,), 0.0)
    return DeliveryCounters(plan, RUN), stream


fates = st.lists(
    st.tuples(
        st.sampled_from([True, False, None]),  # acknowledged, refused, never answered
        st.tuples(*(st.integers(0, 3) for _ in RECEIVERS)),  # copies for each receiver
    ),
    max_size=30,
)


@given(st.integers(0, 2), st.integers(0, 2), fates, st.randoms(use_true_random=False))
def test_every_message_is_counted(
    qos: int, subscribed: int, messages: list[tuple[bool | None, tuple[int, int]]], random: object
) -> None:
    counters, stream = _counters(qos, subscribed)
    arrivals = []
    for is_taken, copies in messages:
        stamp = counters.next_stamp(stream, 1_000)
        counters.count_due(stream)
        counters.count_published(stream, STAMP_BYTES)
        if qos:
            counters.count_result(stream, stamp.number, is_taken)
        arrivals += [
            (receiver, stamp) for receiver, n in zip(RECEIVERS, copies, strict=True) for _ in range(n)
        ]
    random.shuffle(arrivals)  # type: ignore[attr-defined]
    news = [counters.receive(receiver, add_stamp(stamp, b""), 3_000) for receiver, stamp in arrivals]

    seen: set[tuple[int, int]] = set()
    disordered, highest = 0, dict.fromkeys(RECEIVERS, -1)
    for (receiver, stamp), new in zip(arrivals, news, strict=True):
        assert (new is not None) == ((receiver, stamp.number) not in seen)
        if new is not None:
            disordered += stamp.number < highest[receiver]
            highest[receiver] = max(highest[receiver], stamp.number)
        seen.add((receiver, stamp.number))
    total = counters.sums([stream])
    lost = [
        (is_taken, receiver)
        for number, (is_taken, _) in enumerate(messages)
        for receiver in RECEIVERS
        if (receiver, number) not in seen
    ]
    assert total.asked == total.published == len(messages)
    assert total.expected == 2 * len(messages)
    assert total.received == len(seen) == counters.received
    assert total.lost == len(lost) == total.expected - total.received
    assert total.duplicates == len(arrivals) - len(seen)
    assert total.disordered == disordered
    assert total.latency.count == len(seen)
    effective = min(qos, subscribed)
    broken = sum(is_taken is True for is_taken, _ in lost) if effective else 0
    assert total.broken == broken + (total.duplicates if effective == 2 else 0)
    assert counters.outstanding == len(lost), "and nobody waits for an answer"
    if qos:
        counted = [is_taken for is_taken, _ in messages]
        assert (total.acknowledged, total.rejected) == (counted.count(True), counted.count(False))
        assert total.unanswered == counted.count(False) + counted.count(None)


def test_a_message_of_another_run_or_for_an_unknown_receiver_is_foreign() -> None:
    counters, stream = _counters(1)
    counters.count_published(stream, STAMP_BYTES)
    for receiver, payload in [
        (0, add_stamp(Stamp(RUN + 1, 0, 0, 1), b"")),
        (0, add_stamp(Stamp(RUN, 99, 0, 1), b"")),
        (5, add_stamp(Stamp(RUN, 0, 0, 1), b"")),
        (0, b"short"),
    ]:
        assert counters.receive(receiver, payload, 2) is None
    assert counters.foreign == 4
    assert counters.sums([stream]).received == 0


@given(
    st.integers(0, 0xFFFF), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1),
    st.binary(max_size=40),
)  # fmt: skip
def test_a_stamp_is_read_back(run: int, stream: int, number: int, due: int, body: bytes) -> None:
    stamp = Stamp(run, stream, number, due)
    assert read_stamp(add_stamp(stamp, body)) == stamp


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_a_quantile_is_too_high_by_an_eighth_at_most_and_never_too_low(
    times: list[int], share: float
) -> None:
    histogram = Histogram()
    for time in times:
        histogram.add(time)
    rank = next(n for n in count(1) if n >= share * len(times) - 1e-9)
    exact = sorted(times)[rank - 1]
    found = histogram.quantile(share)
    assert found is not None
    assert exact / 1000 <= found <= max(exact * 1.125, exact) / 1000 + 1e-9
    assert histogram.count == len(times)
    assert histogram.most == max(times)


@given(st.lists(st.lists(st.integers(0, 10**7), max_size=20), max_size=5))
def test_histograms_are_merged(parts: list[list[int]]) -> None:
    histograms, whole = [], Histogram()
    for part in parts:
        histograms.append(Histogram())
        for time in part:
            histograms[-1].add(time)
            whole.add(time)
    assert Histogram().merge(histograms).to_json() == whole.to_json()
