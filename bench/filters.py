"""What a node's subscriptions cost against how many there are: memory for each filter, and the time to find
who wants a message.

The core's own table, without a network: a process of its own for each size, so that its memory tells. The
time of a look-up is that of `matching` less what the same call takes where nobody has subscribed.

It is measured twice. A *working set* is the same number of topics at each size, drawn from all filters and
asked for again and again: what a table costs by being larger. *Spread* over the whole table, most topics are
asked for once: then a processor's caches hold nothing of what is wanted, and memory is what is waited for.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Final, Literal, TypeAlias

from hbroker._native import Config, Engine
from hbroker.bench.process import resident_bytes

__all__ = ["Filters", "Kind", "measure_filters"]

Kind: TypeAlias = Literal["plain", "wildcard"]

_OF_A_SESSION: Final = 100
"""Filters that one client has."""
_ASKED: Final = 50_000
"""Look-ups of one turn, each by itself, in an order that no cache guesses."""
_WORKING_SET: Final = 1_000
"""Topics that these look-ups have in common; fewer where there are no more filters."""
_TURNS: Final = 15
_LEAST_WEIGHED: Final = 10_000
"""Fewer fit into memory that the process has already."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Of one size. `bytes_each`: what the process grew by, sessions included; None: too little to tell.
    `look_up_ns`: of topics of a working set, and `spread_ns` of topics out of the whole table: the shortest
    mean of some turns; each topic has one subscriber."""

    kind: Kind
    filters: int
    bytes_each: float | None
    subscribe_ns: float
    look_up_ns: float
    spread_ns: float


def measure_filters(kind: Kind, count: int) -> Filters:
    """Of so many filters of a kind, in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_measured, kind, count).result()


def _measured(kind: Kind, count: int) -> Filters:
    engine, empty = _node(), _node()
    chosen = random.Random(count)
    some = [_topic(number) for number in chosen.sample(range(count), min(count, _WORKING_SET))]
    working_set = chosen.choices(some, k=_ASKED)
    spread = [_topic(chosen.randrange(count)) for _ in range(_ASKED)]
    before = resident_bytes([os.getpid()])
    began = time.thread_time_ns()
    for number in range(count):
        session, is_first = number // _OF_A_SESSION + 1, number % _OF_A_SESSION == 0
        if is_first:
            engine.open_session(session, persistent=True)
        engine.subscribe(session, _filter(kind, number), 0)
    took = time.thread_time_ns() - began
    grown = resident_bytes([os.getpid()]) - before
    assert all(engine.matching(topic) == 1 for topic in (*some, *spread[:100]))
    return Filters(
        kind,
        count,
        bytes_each=grown / count if count >= _LEAST_WEIGHED else None,
        subscribe_ns=took / count,
        look_up_ns=_look_up(engine, empty, working_set),
        spread_ns=_look_up(engine, empty, spread),
    )


def _look_up(engine: Engine, empty: Engine, topics: Sequence[str]) -> float:
    """Nanoseconds of CPU time for each. Turns alternate with those of a node without subscriptions, so that
    what else the machine does meets both."""
    turns = [(_asking(engine, topics), _asking(empty, topics)) for _ in range(_TURNS)]
    found, base = min(turn[0] for turn in turns), min(turn[1] for turn in turns)
    return max(0.0, found - base)


def _asking(engine: Engine, topics: Sequence[str]) -> float:
    """Nanoseconds of CPU time for each."""
    matching = engine.matching
    began = time.thread_time_ns()
    for topic in topics:
        matching(topic)
    return (time.thread_time_ns() - began) / len(topics)


def _node() -> Engine:
    config = Config(node=True, session=1, incarnation=1, token_keys=[bytes(16)], seed=1)
    engine = Engine(config)
    engine.grant("", 1, True)
    return engine


def _topic(number: int) -> str:
    return f"site/{number % 100}/device/{number}/state"


def _filter(kind: Kind, number: int) -> str:
    return _topic(number) if kind == "plain" else f"site/+/device/{number}/#"
