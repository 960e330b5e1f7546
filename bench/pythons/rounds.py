"""One round: a new broker, a publishing process and a subscribing process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Final, TypeVar

from bench.plan import Plan
from bench.pythons.board import Board, Field, Pace, ReceiveChecker, new_board
from bench.pythons.libraries import Library
from bench.rounds import Round, Timing, up
from hbroker.bench.launching import NoAnswer, on_cpus
from hbroker.bench.plan import Address
from hbroker.bench.process import cpu_seconds, machine_busy_seconds, resident_bytes

E = TypeVar("E", Pace, ReceiveChecker)

_READY_S: Final = 20.0
_END_S: Final = 20.0
_GLANCE_S: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonRound(Round):
    """The result of one round: microseconds of CPU time for each delivered message, with the kernel's
    part."""

    publisher_us: float
    subscriber_us: float
    broker_us: float


def measure_python(library: Library, plan: Plan, timing: Timing, broker_cpus: frozenset[int]) -> PythonRound:
    """Runs one round. Raises NoAnswer if one of the three processes does not start or ends, or messages stop
    arriving."""
    board = new_board()
    with (
        up(library.broker, broker_cpus) as standing,
        _running(library.subscribe, standing.processes.address, plan, ReceiveChecker(board)) as subscriber,
    ):
        broker = standing.processes
        _wait(board, Field.IS_SUBSCRIBED, subscriber)
        with _running(library.publish, broker.address, plan, Pace(board, plan.window)) as publisher:
            _wait(board, Field.DELIVERED, publisher)
            time.sleep(timing.warm_up)
            ends = publisher.pid or 0, subscriber.pid or 0
            first = _counters(board, broker.pids, *ends)
            time.sleep(timing.duration)
            last = _counters(board, broker.pids, *ends)
            resident = resident_bytes(broker.pids)
            board[Field.IS_OVER] = 1
            _join(library, publisher)
        _join(library, subscriber)
    spent = {name: last[name] - first[name] for name in last}
    return _round(library, plan, spent, board, resident)


def _counters(board: Board, broker: Sequence[int], publisher: int, subscriber: int) -> dict[str, float]:
    """Messages, wall time and CPU seconds, until now."""
    return {
        "delivered": board[Field.DELIVERED],
        "clock": time.monotonic(),
        "publisher": cpu_seconds([publisher]),
        "subscriber": cpu_seconds([subscriber]),
        "broker": cpu_seconds(broker),
        "machine": machine_busy_seconds(),
    }


def _round(
    library: Library, plan: Plan, spent: Mapping[str, float], board: Board, resident: int
) -> PythonRound:
    count, seconds, broker = spent["delivered"], spent["clock"], spent["broker"]
    if not count:
        raise NoAnswer(f"{library.name}: messages came, and then no more")
    ends = spent["publisher"] + spent["subscriber"]
    return PythonRound(
        broker=library.name,
        qos=plan.qos,
        pairs=plan.pairs,
        subscribers=plan.subscribers,
        rate=None,
        seconds=seconds,
        delivered_per_s=count / seconds,
        delivered_per_cpu_s=count / max(broker, 1e-9),
        broker_cpu=broker / seconds,
        broker_cpu_s=broker,
        broker_rss_bytes=resident,
        generator_cpu=ends / seconds,
        others_cpu=max(0.0, (spent["machine"] - ends - broker) / seconds),
        sent=board[Field.PUBLISHED],
        delivered=board[Field.PUBLISHED] - board[Field.LOST],
        lost=board[Field.LOST],
        duplicated=board[Field.DUPLICATED],
        disordered=board[Field.DISORDERED],
        corrupted=board[Field.DAMAGED],
        publisher_us=1e6 * spent["publisher"] / count,
        subscriber_us=1e6 * spent["subscriber"] / count,
        broker_us=1e6 * broker / count,
    )


@contextmanager
def _running(
    body: Callable[[Address, int, E], None], address: Address, plan: Plan, end: E
) -> Iterator[BaseProcess]:
    """A process on the load's CPUs, as long as the context lasts."""
    process = get_context("spawn").Process(target=body, args=(address, plan.qos, end), daemon=True)
    with on_cpus(plan.cpus):
        process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def _wait(board: Board, field: Field, process: BaseProcess) -> None:
    """Returns when the field is not 0. Raises NoAnswer if the process ends first, or the wait times out."""
    deadline = time.monotonic() + _READY_S
    while not board[field]:
        if not process.is_alive() or time.monotonic() > deadline:
            raise NoAnswer(f"{field.name} was not reached")
        time.sleep(_GLANCE_S)


def _join(library: Library, process: BaseProcess) -> None:
    process.join(_END_S)
    if process.exitcode != 0:
        raise NoAnswer(f"{library.name}: an end failed, or did not end")
