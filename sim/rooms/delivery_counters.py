"""Exact counts of published and received messages, for each stream and each of its receivers.

A number that is skipped opens a gap. A message that fills a gap later is disordered; one that was received
before is a duplicate. What is missing at the end is lost. A message was *promised* if it and the subscription
had QoS 1 or 2, and the message was acknowledged (docs/guarantees.md). Then its loss is a fault of the
network, and so is a duplicate at QoS 2. All other losses and duplicates are only counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .latency import Histogram
from .plan import Plan, Stream
from .stamp import Stamp, read_stamp

__all__ = ["CounterSums", "DeliveryCounters", "PublishCounters", "ReceiveCounters"]


class PublishCounters:
    """The counters of one stream at its publisher."""

    __slots__ = ("acknowledged", "asked", "bytes", "published", "rejected", "unanswered", "unsent")

    def __init__(self) -> None:
        self.asked = 0
        """Messages that were due."""
        self.published = 0
        """Messages that were handed to the network. Each has the next number."""
        self.bytes = 0
        self.unsent = 0
        """Messages that were due and not handed over: the device had disconnected, or its queue was full."""
        self.acknowledged = 0
        """Acknowledged messages of QoS 1 and 2."""
        self.rejected = 0
        """Messages that the network refused."""
        self.unanswered: set[int] = set()
        """Numbers of messages of QoS 1 and 2 that are not acknowledged: without a result, or refused."""


class ReceiveCounters:
    """The counters of one stream at one receiver. Numbers begin with 0."""

    __slots__ = ("disordered", "duplicates", "expected", "missing", "received")

    def __init__(self) -> None:
        self.received = 0
        self.duplicates = 0
        self.disordered = 0
        self.expected = 0
        self.missing: set[int] | None = None

    def count(self, number: int) -> bool:
        """Counts a number. Returns whether it is new."""
        if number == self.expected:
            self.expected += 1
        elif number > self.expected:
            self.missing = self.missing or set()
            self.missing.update(range(self.expected, number))
            self.expected = number + 1
        elif self.missing and number in self.missing:
            self.missing.remove(number)
            self.disordered += 1
        else:
            self.duplicates += 1
            return False
        self.received += 1
        return True

    def lost_numbers(self, published: int) -> set[int]:
        """The numbers below `published` that were not received."""
        return (self.missing or set()) | set(range(self.expected, published))


@dataclass(slots=True)
class CounterSums:
    """Sums over some streams.

    `expected`: copies that receivers should get, one for each receiver of each message. `lost`, `duplicates`:
    of these copies. `broken`: those of them that the network had promised not to lose, or not to duplicate.
    """

    asked: int = 0
    published: int = 0
    bytes: int = 0
    unsent: int = 0
    acknowledged: int = 0
    rejected: int = 0
    unanswered: int = 0
    expected: int = 0
    received: int = 0
    lost: int = 0
    duplicates: int = 0
    disordered: int = 0
    broken: int = 0
    latency: Histogram = field(default_factory=Histogram)

    def to_json(self) -> dict[str, object]:
        """All fields, ready for JSON."""
        counts = {name: getattr(self, name) for name in self.__slots__ if name != "latency"}
        return {**counts, "latency": self.latency.to_json()}


class DeliveryCounters:
    """The counters of one run. `foreign`: messages that are not of this run, or not for their receiver."""

    def __init__(self, plan: Plan, run: int) -> None:
        self._plan = plan
        self._run = run
        self.publish_counters = [PublishCounters() for _ in plan.streams]
        self._receive_counters = [
            {receiver: ReceiveCounters() for receiver in receivers} for receivers in plan.receivers
        ]
        self._latencies = [Histogram() for _ in plan.streams]
        self._recent = Histogram()
        self.asked = 0
        self.published = 0
        self.expected = 0
        self.received = 0
        self.awaited = 0
        """Messages of QoS 1 and 2 whose clients still wait for the result."""
        self.foreign = 0

    # Change

    def count_due(self, stream: Stream) -> None:
        """A message is due."""
        self.publish_counters[stream.number].asked += 1
        self.asked += 1

    def count_unsent(self, stream: Stream) -> None:
        """A message that was due is never published."""
        self.publish_counters[stream.number].unsent += 1

    def next_stamp(self, stream: Stream, due_us: int) -> Stamp:
        """The stamp of the next message of a stream. `due_us` 0: the time is not known (a will)."""
        return Stamp(self._run, stream.number, self.publish_counters[stream.number].published, due_us)

    def count_published(self, stream: Stream, size: int) -> None:
        """The next message is handed over, or a will is due."""
        publish_counters = self.publish_counters[stream.number]
        if stream.qos:
            publish_counters.unanswered.add(publish_counters.published)
            self.awaited += 1
        publish_counters.published += 1
        publish_counters.bytes += size
        self.published += 1
        self.expected += len(self._receive_counters[stream.number])

    def count_result(self, stream: Stream, number: int, is_accepted: bool | None) -> None:
        """The network acknowledged or refused a message; None: its client does not wait for that any more."""
        self.awaited -= 1
        publish_counters = self.publish_counters[stream.number]
        if is_accepted:
            publish_counters.acknowledged += 1
            publish_counters.unanswered.discard(number)
        elif is_accepted is not None:
            publish_counters.rejected += 1

    def receive(self, receiver: int, payload: bytes, now_us: int) -> Stamp | None:
        """Counts a received message. Returns its stamp; None: it is foreign, or a duplicate."""
        stamp = read_stamp(payload)
        if stamp is None or stamp.run != self._run or stamp.stream >= len(self._receive_counters):
            self.foreign += 1
            return None
        receive_counters = self._receive_counters[stamp.stream].get(receiver)
        if receive_counters is None:
            self.foreign += 1
            return None
        if receive_counters.count(stamp.number):
            self.received += 1
            if stamp.due_us:
                self._latencies[stamp.stream].add(now_us - stamp.due_us)
                self._recent.add(now_us - stamp.due_us)
            return stamp
        return None

    # Read

    @property
    def outstanding(self) -> int:
        """Results that clients wait for, and copies that were not received yet."""
        return self.awaited + self.expected - self.received

    def take_recent(self) -> Histogram:
        """The latencies since the last call."""
        recent, self._recent = self._recent, Histogram()
        return recent

    def sums(self, streams: Iterable[Stream]) -> CounterSums:
        """The sums over these streams."""
        total = CounterSums()
        for stream in streams:
            self._add(total, stream)
        return total

    def _add(self, total: CounterSums, stream: Stream) -> None:
        publish_counters = self.publish_counters[stream.number]
        total.asked += publish_counters.asked
        total.published += publish_counters.published
        total.bytes += publish_counters.bytes
        total.unsent += publish_counters.unsent
        total.acknowledged += publish_counters.acknowledged
        total.rejected += publish_counters.rejected
        total.unanswered += len(publish_counters.unanswered)
        total.latency.merge([self._latencies[stream.number]])
        for receiver, receive_counters in self._receive_counters[stream.number].items():
            qos = min(stream.qos, self._plan.clients[receiver].qos)
            lost = receive_counters.lost_numbers(publish_counters.published)
            total.expected += publish_counters.published
            total.received += receive_counters.received
            total.lost += len(lost)
            total.duplicates += receive_counters.duplicates
            total.disordered += receive_counters.disordered
            total.broken += len(lost - publish_counters.unanswered) if qos else 0
            total.broken += receive_counters.duplicates if qos == 2 else 0
