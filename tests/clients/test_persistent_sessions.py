"""`-c`, `-x` and `$share`: the same steps with mosquitto's programs and with hpub and hsub have the same
results."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import pytest

from tests.clients.programs import Ended, Family, HBrokerPrograms, run, running

Step: TypeAlias = tuple[str, ...]
"""A program, and its arguments. `{t}` stands for a topic of the test case, which is its client id, too."""

KEPT = ("-i", "{t}", "-c", "-t", "{t}", "-q", "1")
SENT = ("-t", "{t}", "-q", "1", "-m")

STEPS: dict[str, tuple[Step, ...]] = {
    "kept": (
        ("sub", *KEPT, "-E"),
        ("pub", *SENT, "a"),
        ("pub", *SENT, "b"),
        ("sub", *KEPT, "-C", "2", "-W", "9"),
    ),
    "kept for a time": (
        ("sub", *KEPT, "-E", "-V", "5", "-x", "60"),
        ("pub", *SENT, "a"),
        ("sub", *KEPT, "-V", "5", "-x", "60", "-C", "1", "-W", "9"),
    ),
    "QoS 0 is not kept": (("sub", *KEPT, "-E"), ("pub", "-t", "{t}", "-m", "a"), ("sub", *KEPT, "-W", "1")),
    "without -c it begins clean": (
        ("sub", *KEPT, "-E"),
        ("pub", *SENT, "a"),
        ("sub", "-i", "{t}", "-t", "{t}", "-q", "1", "-W", "1"),
        ("pub", *SENT, "b"),
        ("sub", *KEPT, "-W", "1"),
    ),
    "another name": (("sub", *KEPT, "-E"), ("pub", *SENT, "a"), ("sub", "-i", "x{t}", *KEPT[2:], "-W", "1")),
}


def _filled(step: Step, topic: str) -> Step:
    return tuple(argument.replace("{t}", topic) for argument in step)


def _run_all(family: Family, steps: tuple[Step, ...], topic: str) -> list[tuple[int, bytes, str]]:
    results = [run(family.command(*_filled(step, topic))) for step in steps]
    return [(end.code, end.output, end.complaint) for end in results]


@pytest.mark.parametrize("name", STEPS)
def test_persistent_sessions_behave_like_mosquittos(families: tuple[Family, Family], name: str) -> None:
    topic = f"s{list(STEPS).index(name)}"
    with ThreadPoolExecutor() as both:
        theirs, ours = both.map(lambda family: _run_all(family, STEPS[name], topic), families)
    assert ours == theirs


def _shared(family: Family) -> list[bytes]:
    """The messages received by two members of a group and by one other subscriber, of twenty messages."""
    count = 20
    with (
        running(family.command("sub", "-i", "alone", "-t", "jobs", "-q", "1", "-C", str(count))) as alone,
        running(family.command("sub", "-i", "m1", "-t", "$share/g/jobs", "-q", "1")) as one,
        running(family.command("sub", "-i", "m2", "-t", "$share/g/jobs", "-q", "1")) as other,
    ):
        for name in ("alone", "m1", "m2"):
            family.await_subscriber(name, "jobs")
        if isinstance(family, HBrokerPrograms):
            family.await_subscribers(3, "jobs")
        text = "".join(f"{number}\n" for number in range(count)).encode()
        assert run(family.command("pub", "-t", "jobs", "-q", "1", "-l"), text).code == 0
        family.await_acknowledgements(("m1", "m2"), count)
        parts = one.stop().output.split() + other.stop().output.split()
        return [alone().output, *sorted(parts, key=int)]


def test_shared_subscriptions_behave_like_mosquittos(families: tuple[Family, Family]) -> None:
    with ThreadPoolExecutor() as both:
        theirs, ours = both.map(_shared, families)
    assert ours == theirs
    assert len(ours) == 21


def test_a_second_hsub_with_the_same_client_id_ends_the_first(families: tuple[Family, Family]) -> None:
    _, ours = families
    with running(ours.command("sub", "-i", "twin", "-t", "twins")) as first:
        ours.await_subscriber("twin", "twins")
        second = run(ours.command("sub", "-i", "twin", "-t", "twins", "-E"))
        ended: Ended = first()
    assert (second.code, ended.code) == (0, 1)
    assert re.search("another run of client 'twin' took its session over", ended.errors)
