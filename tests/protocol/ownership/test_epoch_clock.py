"""The clock that epochs are taken from (§5.1)."""

from __future__ import annotations

from hbroker.protocol.ownership.epoch_clock import AHEAD_OF_ROOT_MS, LIMIT_AHEAD_MS, MOST, EpochClock
from hbroker.protocol.storage import EpochLimit, Storage

SECOND = 1_000_000
UNIX_US = 1_700_000_000 * SECOND


class Saved(Storage):
    """Keeps the last limit that was saved."""

    def __init__(self) -> None:
        self.last: EpochLimit | None = None

    @property
    def limit(self) -> int:
        assert self.last is not None
        return self.last.limit

    def save_epoch_limit(self, limit: EpochLimit) -> None:
        self.last = limit


def test_the_first_run_of_a_root_begins_with_the_wall_clock_and_saves_a_limit_above_it() -> None:
    saved = Saved()
    clock = EpochClock(saved, UNIX_US)
    clock.begin(0, None)
    assert clock.at(0) == UNIX_US // 1000
    assert saved.limit == clock.at(0) + LIMIT_AHEAD_MS


def test_the_clock_of_a_root_never_reaches_the_saved_limit() -> None:
    saved = Saved()
    clock = EpochClock(saved, UNIX_US)
    clock.begin(0, None)
    for _ in range(10):
        due = clock.poll_timeout()
        assert due is not None
        assert clock.at(due) < saved.limit
        clock.handle_timeout(due)
        assert clock.poll_timeout() != due


def test_a_root_begins_above_all_that_an_earlier_run_reached_although_its_wall_clock_was_set_back() -> None:
    saved = Saved()
    EpochClock(saved, UNIX_US).begin(0, None)
    last = saved.last
    clock = EpochClock(saved, UNIX_US - 3600 * SECOND)
    clock.begin(0, last)
    assert last is not None
    assert clock.at(0) > last.limit
    assert saved.limit == clock.at(0) + LIMIT_AHEAD_MS


def test_the_clock_of_a_root_advances_with_the_wall_clock_while_it_is_down() -> None:
    saved = Saved()
    EpochClock(saved, UNIX_US).begin(0, None)
    clock = EpochClock(saved, UNIX_US + 7200 * SECOND)
    clock.begin(0, saved.last)
    first_limit = UNIX_US // 1000 + LIMIT_AHEAD_MS
    assert clock.at(0) == first_limit + AHEAD_OF_ROOT_MS + 7_200_000


def test_of_two_runs_that_begin_at_one_limit_the_second_begins_above_the_readings_of_the_first() -> None:
    saved = Saved()
    EpochClock(saved, UNIX_US).begin(0, None)
    first, second = EpochClock(Storage(), UNIX_US), EpochClock(Storage(), UNIX_US)
    first.begin(5 * SECOND, saved.last)
    second.begin(8 * SECOND, saved.last)
    assert second.at(8 * SECOND) >= first.at(8 * SECOND) > saved.limit


def test_a_child_counts_on_from_the_reading_of_its_parent_whatever_its_own_wall_clock_shows() -> None:
    clock = EpochClock(Saved(), UNIX_US + 3600 * SECOND)
    clock.follow(5 * SECOND, UNIX_US // 1000)
    assert clock.at(5 * SECOND) == UNIX_US // 1000
    assert clock.at(6 * SECOND) == UNIX_US // 1000 + 1000
    assert clock.poll_timeout() is None


def test_a_reading_that_makes_no_sense_is_ignored() -> None:
    clock = EpochClock(Saved(), UNIX_US)
    for reading in (0, MOST, (1 << 64) - 1):
        clock.follow(0, reading)
        assert clock.at(0) == UNIX_US // 1000
