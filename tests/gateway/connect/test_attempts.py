"""The limits on wrong passwords by user name and address, and the order in which passwords are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from ipaddress import IPv4Address
from itertools import count, cycle
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker._native import Attempts, AttemptSource
from hbroker.gateway.access import password_checks
from hbroker.gateway.access.file_policy import FilePolicy
from hbroker.gateway.access.password_checks import (
    ADDRESS,
    MOST_RUNNING,
    MOST_WAITING,
    NAME,
    PAIR,
    Attempt,
    Bound,
    PasswordChecks,
    new_attempts,
)
from hbroker.gateway.access.policy import Admitted, Candidate, Decision, Refusal
from hbroker.gateway.native_api import ConnectEvent
from hbroker.gateway.reason_codes import Code
from tests.gateway.networks import SECOND, Client, FakeGateway
from tests.network.networks import Tree

WRONG = Refusal(Code.BAD_USER_NAME_OR_PASSWORD)
HERE, ELSEWHERE = "192.0.2.1", "198.51.100.1"


def guess(bounds: Attempts, now: int, host: str, name: str, times: int = 1) -> list[Bound | None]:
    told = (bounds.take(now, bounds.source(host, name)) for _ in range(times))
    return [None if text is None else Bound(text) for text in told]


def test_a_user_name_is_refused_at_an_address_that_guessed_it_too_often() -> None:
    bounds = new_attempts(1)
    assert guess(bounds, 0, HERE, "ann", PAIR.burst) == [None] * PAIR.burst
    assert guess(bounds, 0, HERE, "ann") == [Bound.PAIR]
    assert guess(bounds, 0, ELSEWHERE, "ann") == [None]
    assert guess(bounds, 0, HERE, "bob") == [None]
    later = PAIR.interval
    assert guess(bounds, later, HERE, "ann", 2) == [None, Bound.PAIR]
    full = later + PAIR.burst * PAIR.interval
    assert guess(bounds, full, HERE, "ann", PAIR.burst + 1) == [None] * PAIR.burst + [Bound.PAIR]


def test_guesses_of_one_name_do_not_block_other_names_at_the_same_address() -> None:
    bounds = new_attempts(1)
    guess(bounds, 0, HERE, "ann", 100_000)
    assert guess(bounds, 0, HERE, "bob") == [None]


def test_an_address_that_guesses_many_names_is_refused_and_other_addresses_are_not() -> None:
    bounds = new_attempts(1)
    told = [guess(bounds, 0, HERE, f"n{n}")[0] for n in range(ADDRESS.burst + 1)]
    assert told == [None] * ADDRESS.burst + [Bound.ADDRESS]
    assert guess(bounds, 0, ELSEWHERE, "n1") == [None]


def test_a_name_that_many_addresses_guess_is_refused_except_where_its_user_logged_in_before() -> None:
    bounds = new_attempts(1)
    home = bounds.source("2001:db8::1", "ann")
    assert bounds.take(0, home) is None
    bounds.succeeded(0, home)
    told = [guess(bounds, 0, f"10.0.{n // 256}.{n % 256}", "ann")[0] for n in range(NAME.burst + 1)]
    assert told == [None] * NAME.burst + [Bound.NAME]
    assert guess(bounds, 0, "2001:db8::2", "ann", PAIR.burst + 1) == [None] * PAIR.burst + [Bound.PAIR]
    assert guess(bounds, 0, ELSEWHERE, "bob") == [None]


def test_the_addresses_of_one_ipv6_network_count_as_one() -> None:
    def network_of(host: str) -> int:
        return bounds.source(host, None).address

    bounds = new_attempts(1)
    same = ["2001:db8::1", "2001:db8::2:0:0:1", "2001:db8:0:0:ffff:ffff:ffff:ffff"]
    assert len({network_of(host) for host in same}) == 1
    assert network_of("2001:db8:0:1::1") != network_of(same[0])
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") != network_of("192.0.2.2")
    assert network_of("fe80::1%eth0") == network_of("fe80::2%eth1")


def test_a_right_password_does_not_count_as_a_guess() -> None:
    bounds = new_attempts(1)
    source = bounds.source(HERE, "ann")
    for _ in range(10 * NAME.burst):
        assert bounds.take(0, source) is None
        bounds.succeeded(0, source)
    assert guess(bounds, 0, HERE, "ann", PAIR.burst) == [None] * PAIR.burst


def test_the_remembered_addresses_and_names_are_bounded() -> None:
    bounds = new_attempts(1)
    for n in range(3 * password_checks.MOST_REMEMBERED):
        source = bounds.source(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", f"n{n}" + "x" * 100)
        bounds.take(0, source)
        bounds.succeeded(0, source) if n % 2 else None
    assert password_checks.MOST_REMEMBERED <= bounds.sizes()[0] <= 2 * password_checks.MOST_REMEMBERED


@given(st.lists(st.tuples(st.integers(0, 3 * PAIR.interval), st.booleans()), max_size=60))
def test_no_more_guesses_are_checked_than_the_token_bucket_allows(steps: list[tuple[int, bool]]) -> None:
    bounds, now, taken = new_attempts(1), 0, 0
    source = bounds.source(HERE, "ann")
    for pause, is_right in steps:
        now += pause
        if bounds.take(now, source) is None:
            taken += not is_right
            if is_right:
                bounds.succeeded(now, source)
    assert taken <= PAIR.burst + now // PAIR.interval


# The order of the checks


class WaitingAttempts:
    """Attempts of addresses. Connections are numbered in the order in which they arrive."""

    def __init__(self) -> None:
        self.attempts = new_attempts(1)
        self.addresses: dict[str, str] = {}
        self.checks = PasswordChecks(self.attempts)
        self.numbers = count()
        self.hosts: dict[int, str] = {}
        self.refused: list[str] = []

    def enter(self, host: str, name: str = "", now: int = 0) -> int:
        number = next(self.numbers)
        self.hosts[number] = host
        source = self.source(host, name or f"{host}-{number}")
        refused_attempt = self.checks.add(now, Attempt(number, source, lambda: WRONG, FilePolicy()))
        if refused_attempt is not None:
            self.refused.append(self.hosts[refused_attempt[0].number])
        return number

    def source(self, host: str, name: str | None) -> AttemptSource:
        address = self.addresses.setdefault(host, str(IPv4Address(len(self.addresses) + 1)))
        return self.attempts.source(address, name)

    def next(self) -> str:
        """The address of the next attempt, whose password is wrong."""
        attempt = self.checks.poll(0)
        assert attempt is not None
        self.checks.finish(0, attempt.number, WRONG)
        return self.hosts[attempt.number]


def test_addresses_take_turns() -> None:
    waiting = WaitingAttempts()
    for host in ["a"] * 5 + ["b"] * 2 + ["c"]:
        waiting.enter(host)
    assert [waiting.next() for _ in range(8)] == ["a", "c", "b", "b", "a", "a", "a", "a"]
    assert waiting.checks.poll(0) is None


def test_an_address_with_few_attempts_goes_before_many_with_more() -> None:
    waiting = WaitingAttempts()
    for n in range(MOST_WAITING // 2):
        waiting.enter(f"h{n}")
        waiting.enter(f"h{n}")
    waiting.enter("late")
    assert "late" in {waiting.next(), waiting.next()}


def test_an_address_with_many_attempts_gets_turns_however_many_new_addresses_arrive() -> None:
    waiting = WaitingAttempts()
    for _ in range(3):
        waiting.enter("a")
    served = []
    for n in range(20):
        waiting.enter(f"new{n}")
        served.append(waiting.next())
    assert served.count("a") == 3


def test_the_number_of_simultaneous_checks_is_bounded() -> None:
    waiting = WaitingAttempts()
    for n in range(MOST_RUNNING + 1):
        waiting.enter(f"h{n}")
    first = [waiting.checks.poll(0) for _ in range(MOST_RUNNING + 1)]
    assert first[-1] is None
    assert first[0] is not None
    waiting.checks.finish(0, first[0].number, None)
    assert waiting.checks.poll(0) is not None


def test_the_address_with_the_most_waiting_attempts_loses_one_when_the_queue_is_full() -> None:
    waiting = WaitingAttempts()
    hosts = [f"h{n}" for n in range(5)]
    for n in range(MOST_WAITING):
        waiting.enter(hosts[n % 5])
    assert waiting.refused == []
    for n in range(100):
        waiting.enter(f"new{n}")
    assert not any(host.startswith("new") for host in waiting.refused)
    assert len(waiting.refused) == 100


def test_of_addresses_that_wait_alike_the_one_with_most_recent_attempts_loses_one() -> None:
    waiting = WaitingAttempts()
    for n in range(MOST_WAITING):
        for _ in range(3):  # an attempt that was given back counts as well
            waiting.attempts.take(0, waiting.source(f"h{n}", None))
            waiting.attempts.give_back(0, waiting.source(f"h{n}", None))
        waiting.enter(f"h{n}")
    waiting.enter("late", "x")
    assert "late" not in waiting.refused
    assert len(waiting.refused) == 1
    for n in range(5):
        waiting.enter(f"h{n}", f"again{n}")
        assert waiting.refused[-1].startswith("h")


def test_of_equal_addresses_the_newcomer_is_refused() -> None:
    waiting = WaitingAttempts()
    for n in range(MOST_WAITING + 1):
        waiting.enter(f"h{n}")
    assert waiting.refused == [f"h{MOST_WAITING}"]


def test_an_attempt_without_a_verdict_is_not_counted_as_a_guess() -> None:
    waiting = WaitingAttempts()
    for code in (Code.SERVER_UNAVAILABLE, Code.UNSPECIFIED_ERROR):
        for _ in range(2 * PAIR.burst):
            number = waiting.enter(HERE, "ann")
            assert waiting.checks.poll(0) is not None
            waiting.checks.finish(0, number, Refusal(code))
    assert waiting.refused == []


# A gateway


class SlowPolicy(FilePolicy):
    """A user's password is the user's name. A password that was right once is known without another check."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[tuple[str | None, bytes | None]] = set()

    def admit(self, candidate: Candidate) -> Decision | Callable[[], Decision]:
        credentials = candidate.username, candidate.password
        if credentials in self.known:
            return Admitted(candidate.username)
        return lambda: self._check(credentials)

    def _check(self, credentials: tuple[str | None, bytes | None]) -> Decision:
        if credentials[0] is None or credentials[1] != credentials[0].encode():
            return WRONG
        self.known.add(credentials)
        return Admitted(credentials[0])


CHECK_US = 10_000


@dataclass
class GuessFlood:
    """A gateway with 10,000 guesses in each second of virtual time, and checks that take 10 ms each."""

    gateway: FakeGateway
    checks: list[tuple[int, int, Callable[[], Decision]]] = field(default_factory=list)
    most_waiting: int = 0
    numbers: Iterator[int] = field(default_factory=lambda: count(1 << 40))

    def guess(self, guesses: Iterator[tuple[str, str]], seconds: float) -> None:
        control, world = self.gateway.control, self.gateway.world
        for _ in range(int(seconds * 100)):
            for _ in range(100):
                host, name = next(guesses)
                number = next(self.numbers)
                event = ConnectEvent(number, 0, (host, 1), 5, "guess", username=name, password=b"guess")
                control.handle_mqtt(world.now, event)
            world.run(SECOND // 100)
            self.run_checks()

    def run_checks(self) -> None:
        """Does what the process does: runs the checks of its threads."""
        control, now = self.gateway.control, self.gateway.world.now
        while self.checks and self.checks[0][0] <= now:
            _, number, check = heappop(self.checks)
            control.handle_decision(now, number, check())
        while (asked := control.poll_check(now)) is not None:
            heappush(self.checks, (now + CHECK_US, *asked))
        self.gateway.settle()
        self.most_waiting = max(self.most_waiting, control._connect_handler._checks._queue_length)

    def log_in(self, name: str, host: str) -> Client:
        return self.gateway.begin(name, username=name, password=name.encode(), peer=(host, 1))


def one_address_one_name() -> Iterator[tuple[str, str]]:
    return cycle([("203.0.113.9", "mallory")])


def one_address_many_names() -> Iterator[tuple[str, str]]:
    return (("203.0.113.9", f"n{n}") for n in count())


def many_addresses_the_names_of_others() -> Iterator[tuple[str, str]]:
    random = Random(1)
    return ((f"10.0.{n % 4}.{n // 4 % 250}", random.choice(("known", "other"))) for n in count())


def many_addresses_many_names() -> Iterator[tuple[str, str]]:
    return ((f"10.0.{n % 4}.{n // 4 % 250}", f"n{n}") for n in count())


@pytest.mark.parametrize(
    ("guesses", "neighbour"),
    [
        (one_address_one_name, "203.0.113.9"),
        (one_address_many_names, "192.0.2.7"),
        (many_addresses_the_names_of_others, "192.0.2.7"),
        (many_addresses_many_names, "192.0.2.7"),
    ],
)
def test_known_and_new_users_log_in_during_ten_thousand_guesses_a_second(
    guesses: Callable[[], Iterator[tuple[str, str]]], neighbour: str
) -> None:
    """A known user logs in at once, from any address. A new user logs in within two seconds, also from the
    guesser's own address if that guesses only one name."""
    gateway = FakeGateway(Tree.grow(1, ("home",)), "one", policy=SlowPolicy()).ready()
    guess_flood = GuessFlood(gateway)
    first = guess_flood.log_in("known", HERE)
    guess_flood.run_checks()
    gateway.world.run(CHECK_US)
    guess_flood.run_checks()
    gateway.world.run_until(lambda: first.is_accepted)
    flood = guesses()
    guess_flood.guess(flood, 0.3)
    for host in (HERE, "203.0.113.9"):
        known = guess_flood.log_in("known", host)
        guess_flood.guess(flood, 0.02)
        assert known.is_accepted
        known.drop()
    stranger = guess_flood.log_in("stranger", neighbour)
    for _ in range(20):
        guess_flood.guess(flood, 0.1)
        if stranger.is_accepted:
            break
        if stranger.is_answered:
            stranger = guess_flood.log_in("stranger", neighbour)
    assert stranger.is_accepted
    assert guess_flood.most_waiting <= MOST_WAITING == password_checks.MOST_WAITING
    counted = gateway.control.counters()
    assert sum(counted.get(f"refused_{by}", 0) for by in ("pair", "address", "name", "busy")) > 3_000
