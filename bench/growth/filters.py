"""The cost of a node's subscriptions by their number: memory for each filter, and the time to find the
subscribers of a message.

It measures the core's own table, without a network, in a new process for each size, so that its memory can be
measured. The time of a look-up is that of `matching`, less the time of the same call without subscriptions.

There are two access patterns. A *working set* is the same number of topics at each size, drawn from all
filters and looked up repeatedly: it shows the cost of a larger table. With topics *spread* over the whole
table, most topics are looked up once: then the processor's caches miss, and the look-up waits for memory.
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

Kind: TypeAlias = Literal["plain", "wildcard"]

_OF_A_SESSION: Final = 100
"""Filters of one client."""
_ASKED: Final = 50_000
"""Look-ups in one turn, each a separate call, in a random order."""
_WORKING_SET: Final = 1_000
"""Topics in the working set; fewer if there are fewer filters."""
_TURNS: Final = 15
_LEAST_WEIGHED: Final = 10_000
"""With fewer filters the process does not grow: they fit into memory that it already has."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The result for one size.

    `bytes_each`: the growth of the process for each filter, with sessions; None: too few filters.
    `look_up_ns`: for topics of a working set; `spread_ns`: for topics of the whole table. Each is the
    shortest mean of several turns. Each topic has one subscriber.
    """

    kind: Kind
    filters: int
    bytes_each: float | None
    subscribe_ns: float
    look_up_ns: float
    spread_ns: float


def measure_filters(kind: Kind, count: int) -> Filters:
    """Measures this number of filters of a kind, in a process of its own."""
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
    """Nanoseconds of CPU time for each look-up.

    Turns alternate with those of a node without subscriptions, so that other load of the machine affects
    both.
    """
    turns = [(_asking(engine, topics), _asking(empty, topics)) for _ in range(_TURNS)]
    found, base = min(turn[0] for turn in turns), min(turn[1] for turn in turns)
    return max(0.0, found - base)


def _asking(engine: Engine, topics: Sequence[str]) -> float:
    """Nanoseconds of CPU time for each call."""
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
