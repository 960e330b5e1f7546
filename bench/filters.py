"""What a node's subscriptions cost against how many there are: memory for each filter, and the time to find
who wants a message.

The core's own table, without a network: a process of its own for each size, so that its memory tells. The
time of a look-up is that of `matching` less what the same call takes where nobody has subscribed. Topics are
asked for in an order that no cache guesses.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable
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
"""Topics that are looked up, each by itself."""
_TURNS: Final = 5
_LEAST_WEIGHED: Final = 10_000
"""Fewer fit into memory that the process has already."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Of one size. `bytes_each`: what the process grew by, sessions included; None: too little to tell.
    `look_up_ns`: the shortest mean of some turns over many topics; each topic has one subscriber."""

    kind: Kind
    filters: int
    bytes_each: float | None
    subscribe_ns: float
    look_up_ns: float


def measure_filters(kind: Kind, count: int) -> Filters:
    """Of so many filters of a kind, in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_measured, kind, count).result()


def _measured(kind: Kind, count: int) -> Filters:
    engine, empty = _node(), _node()
    chosen = random.Random(count)
    asked = [_topic(chosen.randrange(count)) for _ in range(_ASKED)]
    before = resident_bytes([os.getpid()])
    began = time.thread_time_ns()
    for number in range(count):
        session, is_first = number // _OF_A_SESSION + 1, number % _OF_A_SESSION == 0
        if is_first:
            engine.open_session(session, persistent=True)
        engine.subscribe(session, _filter(kind, number), 0)
    took = time.thread_time_ns() - began
    grown = resident_bytes([os.getpid()]) - before
    assert all(engine.matching(topic) == 1 for topic in asked[:100])
    base = min(_asking(empty, asked) for _ in range(_TURNS))
    look_up = min(_asking(engine, asked) for _ in range(_TURNS))
    bytes_each = grown / count if count >= _LEAST_WEIGHED else None
    return Filters(kind, count, bytes_each, took / count, max(0.0, look_up - base))


def _asking(engine: Engine, topics: Iterable[str]) -> float:
    """Nanoseconds of CPU time for each."""
    matching = engine.matching
    began = time.thread_time_ns()
    for topic in topics:
        matching(topic)
    return (time.thread_time_ns() - began) / _ASKED


def _node() -> Engine:
    config = Config(node=True, session=1, incarnation=1, publisher=1, token_keys=[bytes(16)], seed=1)
    engine = Engine(config)
    engine.grant("", 1, True)
    return engine


def _topic(number: int) -> str:
    return f"site/{number % 100}/device/{number}/state"


def _filter(kind: Kind, number: int) -> str:
    return _topic(number) if kind == "plain" else f"site/+/device/{number}/#"
