"""The generators have the distributions that their settings name (error probability: `statistics.ALPHA`)."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise, takewhile
from random import Random

import pytest

from hbroker.sim.rooms.model.arrivals import DAY_S, arrivals, is_day
from hbroker.sim.rooms.model.device import Connect, Disconnect, Publish, device, online_times, person, walk
from hbroker.sim.rooms.model.values import PULL, noise, payload_source
from hbroker.sim.rooms.scenario.settings import (
    Absence,
    Burst,
    Frames,
    Periodic,
    Poisson,
    Report,
    Size,
    Value,
)
from tests.rooms import statistics

HOUR_S = 3600.0
N = 4_000
BLOCK = noise(1)


def _gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


def test_the_jitter_of_a_period_does_not_accumulate() -> None:
    pattern = Periodic(10.0, jitter=0.2)
    times = list(islice(arrivals(Random(1), pattern), N))
    offsets = [at - n * 10.0 for n, at in enumerate(times)]
    phase = min(offsets)
    statistics.assert_follows([offset - phase for offset in offsets], statistics.uniform(0.0, 2.0))
    statistics.assert_mean(_gaps(times)[::2], 10.0, 2.0 / 6**0.5)
    assert times == sorted(times)


def test_phases_are_uniform_over_the_period() -> None:
    phases = [next(arrivals(Random(seed), Periodic(10.0))) for seed in range(N)]
    statistics.assert_follows(phases, statistics.uniform(0.0, 10.0))


def test_clock_drifts_are_normally_distributed() -> None:
    periods = []
    for seed in range(N):
        first, last = islice(arrivals(Random(seed), Periodic(1.0, drift_ppm=50.0)), 0, 1_001, 1_000)
        periods.append((last - first) / 1_000)
    statistics.assert_follows([(period - 1.0) * 1e6 for period in periods], statistics.normal(0.0, 50.0))


@pytest.mark.parametrize("clock_s", [0.0, 5.0, 43_207.5])
def test_aligned_events_are_at_multiples_of_the_period(clock_s: float) -> None:
    for seed in range(20):
        times = list(islice(arrivals(Random(seed), Periodic(10.0, aligned=True), clock_s), 50))
        assert all((clock_s + at) % 10.0 == 0.0 for at in times)
        assert 0.0 <= times[0] < 10.0
        assert set(_gaps(times)) == {10.0}


def test_the_gaps_of_a_poisson_process_are_exponential() -> None:
    times = list(islice(arrivals(Random(2), Poisson(60.0)), N))
    statistics.assert_follows(_gaps(times), statistics.exponential(60.0))


@pytest.mark.parametrize("at_night", [0.1, 3.0])
def test_the_night_has_its_own_rate(at_night: float) -> None:
    """The counts of each hour of the day, over many days."""
    days = 400
    clock_s = 10 * HOUR_S
    within = takewhile(lambda at: at < days * DAY_S, arrivals(Random(3), Poisson(6.0, at_night), clock_s))
    counted = Counter(int((clock_s + at) % DAY_S // HOUR_S) for at in within)
    weights = [1.0 if is_day(hour * HOUR_S) else at_night for hour in range(24)]
    assert sum(weight == 1.0 for weight in weights) == 15, "from 7 to 22 o'clock"
    total = sum(counted.values())
    statistics.assert_counts([counted[h] for h in range(24)], [total * w / sum(weights) for w in weights])
    expected = 6.0 * sum(weights) * days
    assert abs(total - expected) < 3.3 * expected**0.5


def test_bursts_have_geometric_sizes_and_exponential_gaps() -> None:
    """The bursts are so far apart that they do not overlap."""
    pattern = Poisson(0.5, burst=Burst(size=4.0, every_s=2.0))
    times = list(islice(arrivals(Random(4), pattern), N))
    gaps = _gaps(times)
    within = [gap for gap in gaps if gap < 60.0]
    statistics.assert_follows(within, statistics.exponential(2.0))
    sizes = [1]
    for gap in gaps:
        if gap < 60.0:
            sizes[-1] += 1
        else:
            sizes.append(1)
    sizes = sizes[:-1]
    shares = [0.25 * 0.75 ** (size - 1) for size in range(1, 8)]
    counted = Counter(min(size, 8) for size in sizes)
    expected = [len(sizes) * share for share in [*shares, 1 - sum(shares)]]
    statistics.assert_counts([counted[size] for size in range(1, 9)], expected)


def test_overlapping_bursts_are_in_order_and_have_the_right_rate() -> None:
    pattern = Poisson(360.0, burst=Burst(size=5.0, every_s=20.0))
    times = list(islice(arrivals(Random(5), pattern), 50_000))
    assert times == sorted(times)
    assert 0.96 < len(times) / times[-1] / pattern.rate < 1.04


def test_frames_have_their_rate_and_their_sizes() -> None:
    size = Size(5_000, 60_000)
    report = Report("frame", Frames(per_s=12.0, key_every=10), size)
    times = list(islice(arrivals(Random(6), report.pattern), N))
    assert abs(N / times[-1] - 12.0) < 0.05
    make_frame = payload_source(Random(6), report, BLOCK)
    sizes = [len(make_frame()) for _ in range(N)]
    start = next(i for i, length in enumerate(sizes) if length > 32_500)
    keys = sizes[start::10]
    others = [length for i, length in enumerate(sizes) if (i - start) % 10]
    statistics.assert_follows(keys, statistics.uniform(32_500, 60_001))
    statistics.assert_follows(others, statistics.uniform(5_000, 32_501))


def test_readings_vary_around_their_usual_value() -> None:
    """An Ornstein-Uhlenbeck process in steps: its stationary distribution, from readings that are far
    apart."""
    report = Report("t", Periodic(1.0), Size(8, 8), value=Value(usual=21.0, step=0.5))
    read = payload_source(Random(7), report, BLOCK)
    readings = [float(read()) for _ in range(200_000)][1_000::100]
    deviation = 0.5 / (1 - (1 - PULL) ** 2) ** 0.5
    statistics.assert_follows(readings, statistics.normal(21.0, deviation))
    assert all(len(read()) == 8 for _ in range(100))


def test_sizes_are_uniform() -> None:
    make_payload = payload_source(Random(8), Report("x", Periodic(1.0), Size(100, 300)), BLOCK)
    statistics.assert_follows([float(len(make_payload())) for _ in range(N)], statistics.uniform(100, 301))
    large = payload_source(Random(8), Report("x", Periodic(1.0), Size(1_000_000, 1_000_000)), BLOCK)
    assert len(large()) == 1_000_000


def test_devices_are_online_and_offline_for_exponential_times() -> None:
    times = list(islice(online_times(Random(9), Absence(20.0, 5.0, is_abrupt=True)), N))
    assert times[0][0] == 0.0
    statistics.assert_follows([until - since for since, until in times], statistics.exponential(20.0))
    statistics.assert_follows([b[0] - a[1] for a, b in pairwise(times)], statistics.exponential(5.0))


def test_people_visit_all_rooms_equally_and_stay_for_exponential_times() -> None:
    steps = list(islice(walk(Random(10), 6, 30.0), N))
    statistics.assert_follows(_gaps([at for at, _ in steps]), statistics.exponential(30.0))
    assert all(before != after for (_, before), (_, after) in pairwise(steps))
    turns = Counter((after - before) % 6 for (_, before), (_, after) in pairwise(steps))
    statistics.assert_counts([turns[by] for by in range(1, 6)], [(N - 1) / 5] * 5)


def test_a_person_leaves_a_room_before_entering_another() -> None:
    events = list(islice(person(Random(11), [0, 1, 2], 10.0), 500))
    assert isinstance(events[0][1], Connect)
    publications = [(at, action) for at, action in events if isinstance(action, Publish)]
    here: int | None = None
    for _, action in publications:
        if action.body == b"in":
            assert here is None
            here = action.stream
        else:
            assert action.stream == here
            here = None


@pytest.mark.parametrize("is_abrupt", [False, True])
def test_an_offline_device_publishes_nothing(is_abrupt: bool) -> None:
    reports = [
        Report("a", Periodic(0.5), Size(8, 8)),
        Report("b", Poisson(3_600.0), Size(8, 8)),
    ]
    absence = Absence(10.0, 10.0, is_abrupt)
    events = list(islice(device(Random(12), reports, absence, BLOCK, clock_s=0.0, first_stream=2), 20_000))
    assert [at for at, _ in events] == sorted(at for at, _ in events)
    is_here = False
    for _, action in events:
        match action:
            case Connect():
                assert not is_here
                is_here = True
            case Disconnect(abrupt):
                assert is_here
                assert abrupt is is_abrupt
                is_here = False
            case Publish(stream, _):
                assert is_here
                assert stream in (2, 3)
    publications = sum(isinstance(action, Publish) for _, action in events)
    assert 0.9 < publications / events[-1][0] / (3.0 * absence.share) < 1.1


def test_equal_seeds_give_equal_events_and_different_seeds_different_ones() -> None:
    reports = [Report("a", Poisson(3_600.0, burst=Burst(2.0, 0.1)), Size(10, 90))]

    def drawn(seed: int) -> list[object]:
        return list(islice(device(Random(seed), reports, None, BLOCK, clock_s=0.0, first_stream=0), 200))

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
