"""The two load processes: one publishes for all pairs, the other receives for all pairs.

*Closed loop*: the publisher keeps a window of messages that were sent and have not arrived, and sends
whenever there is room for a burst. So a broker is asked for all that it can do and is never asked for more,
and nothing need be lost. *Paced*: one message after another, each when it is due; its payload says when that
was. The latency counts from then, so that a publisher that is held up does not hide the time that a message
waited for it.

Where a topic has many subscribers, a message has arrived when as many copies came as there are subscribers,
whosever they are.
"""

from __future__ import annotations

import itertools
import os
import select
import signal
import struct
import time
from collections.abc import Callable
from multiprocessing.sharedctypes import RawValue
from typing import Final

from bench.plan import Plan
from bench.tally import Credits, Tally
from bench.transport import FILLER, Publisher, Subscriber
from hbroker.bench.process import sharpen_sleep

__all__ = ["BURST", "Shared", "publish_load", "receive_load"]

BURST: Final = 128
"""Messages put at once for one pair, if the window has room for two such."""
_STALL_S: Final = 2.0
"""No message arrives for so long: the window is taken to be lost."""
_GLANCE_S: Final = 0.02
_BACK_OFF_S: Final = 0.000_2
_DRAIN_S: Final = 10.0
_DUE: Final = struct.Struct(">Q")


class Shared:
    """What the load processes and the measuring process share. Made before the processes are forked."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.credits = Credits()
        self._is_stopping = RawValue("b", 0)
        self._ready = Credits()

    @property
    def is_stopping(self) -> bool:
        """The publisher is to end."""
        return bool(self._is_stopping.value)

    def stop(self) -> None:
        """Tells the publisher to end."""
        self._is_stopping.value = 1

    def say_ready(self) -> None:
        """A load process is connected."""
        self._ready.give(1)

    def wait_ready(self, timeout_s: float) -> bool:
        """Whether a load process says in time that it is connected."""
        return bool(self._ready.take(timeout_s))

    def close(self) -> None:
        """Gives the descriptors back."""
        self.credits.close()
        self._ready.close()


def publish_load(connect: Callable[[], Publisher], plan: Plan, shared: Shared) -> None:
    """The publishing process: until it is told to stop, or terminated."""
    _settle_in(plan)
    publisher = connect()
    try:
        shared.say_ready()
        if plan.rate is None:
            _publish_closed(publisher, plan, shared)
        else:
            _publish_paced(publisher, plan.rate, shared)
        publisher.drain(_DRAIN_S)
        _report_publisher(publisher, shared.tally)
    except _Terminated:
        return
    finally:
        publisher.close()


def receive_load(connect: Callable[[], Subscriber], plan: Plan, shared: Shared) -> None:
    """The subscribing process: until it is terminated."""
    _settle_in(plan)
    subscriber = connect()
    try:
        shared.say_ready()
        take = subscriber.take if plan.rate is None else _taking_latencies(subscriber, shared.tally)
        _receive(subscriber, take, plan.subscribers, shared)
    except _Terminated:
        _report_subscriber(subscriber, shared.tally)
    finally:
        subscriber.close()


class _Terminated(Exception):
    """SIGTERM came."""


def _settle_in(plan: Plan) -> None:
    os.sched_setaffinity(0, plan.cpus)
    sharpen_sleep()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the measuring process ends us
    signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: object) -> None:
    raise _Terminated


def _publish_closed(publisher: Publisher, plan: Plan, shared: Shared) -> None:
    tally, credits = shared.tally, shared.credits
    room, burst = plan.window, min(BURST, plan.window // 2)
    reports = itertools.cycle(range(64))
    while not shared.is_stopping:
        while room < burst and not shared.is_stopping:
            arrived = credits.take(_STALL_S)
            room = room + arrived if arrived else plan.window
            tally.add("stalls", not arrived)
        sent = publisher.publish(burst)
        room -= sent
        tally.add("sent", sent)
        publisher.turn()
        if not sent:
            tally.add("refusals")
            time.sleep(_BACK_OFF_S)
        if not next(reports):
            _report_publisher(publisher, tally)


def _publish_paced(publisher: Publisher, rate: int, shared: Shared) -> None:
    interval = 1_000_000_000 // rate
    due = time.monotonic_ns()
    while not shared.is_stopping:
        due += interval
        while (early := due - time.monotonic_ns()) > 0:
            time.sleep(early / 1e9)
        publisher.publish_one(_DUE.pack(due) + FILLER[_DUE.size :])
        shared.tally.add("sent")
        publisher.turn()


def _receive(subscriber: Subscriber, take: Callable[[int], int], copies: int, shared: Shared) -> None:
    tally = shared.tally
    indexes = {fd: index for index, fd in enumerate(subscriber.filenos())}
    received = credited = 0
    with select.epoll() as poll:
        for fd in indexes:
            poll.register(fd, select.EPOLLIN)
        for lap in itertools.count():
            for fd, _ in poll.poll(_GLANCE_S):
                received += take(indexes[fd])
            if (arrived := received // copies) > credited:
                shared.credits.give(arrived - credited)
                credited = arrived
            tally.put("received", received)
            if not lap % 64:
                _report_subscriber(subscriber, tally)


def _taking_latencies(subscriber: Subscriber, tally: Tally) -> Callable[[int], int]:
    def take(index: int) -> int:
        payloads = subscriber.take_payloads(index)
        now = time.monotonic_ns()
        for payload in payloads:
            tally.add_latency(now - _DUE.unpack_from(payload)[0])
        return len(payloads)

    return take


def _report_publisher(publisher: Publisher, tally: Tally) -> None:
    tally.put("acknowledged", publisher.acknowledged)
    tally.put("datagrams_to_broker", publisher.datagrams())


def _report_subscriber(subscriber: Subscriber, tally: Tally) -> None:
    for name in ("duplicated", "disordered"):
        tally.put(name, sum(getattr(stream, name) for stream in subscriber.streams))
    tally.put("corrupted", subscriber.corrupted)
    tally.put("datagrams_from_broker", subscriber.datagrams())
