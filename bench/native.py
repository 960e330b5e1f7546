"""Load for hbroker: its own client, less the part of the Python API that costs time for each message.

It is a third shell around the same native endpoint and the same control (`hbroker.protocol.client`), beside
those of `hbroker.connect` and `hbroker.sync`: messages go straight to `Endpoint.publish` and come straight
from `Endpoint.poll_messages`. One endpoint is one client of the network, with a socket and a thread of its
own.
"""

from __future__ import annotations

from random import SystemRandom
from typing import Final

from bench.sequences import Stream
from bench.transport import FILLER, PAYLOAD_BYTES, Address, NoAnswer, topic_of
from hbroker._native import Endpoint, Message, PublishedEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.client import ClientControl
from hbroker.protocol.outcome import Resolved, Subscribed
from hbroker.protocol.subscription import Options
from hbroker.runtime.hub import new_endpoint
from hbroker.runtime.identity import Identity
from hbroker.runtime.turns import clock

__all__ = ["NativeClient", "NativePublisher", "NativeSubscriber"]

_PATIENCE_US: Final = 10_000_000
_TURN_US: Final = 20_000
"""How often the control has its turn under load."""
_BATCH: Final = 1_024
_DISTRIBUTED: Final = (pb.REASON_SUCCESS, pb.REASON_NO_MATCHING_SUBSCRIBERS)


class NativeClient:
    """One endpoint and its control, polled. Raises NoAnswer where a request fails. `receive_messages`: as in
    `hbroker.runtime.identity.Profile`."""

    def __init__(self, root: Address, name: str, *, receive_messages: int = 4_096) -> None:
        identity = Identity.of(name, receive_messages=receive_messages)
        self.endpoint: Endpoint = new_endpoint(("127.0.0.1", 0), identity)
        self.control = ClientControl(self.endpoint, SystemRandom(), root, identity.terms)
        self.acknowledged = 0
        self.failed = 0
        """Messages of QoS 1 and 2 that were given up."""
        self._next_turn = 0

    def turn(self, *, at_once: bool = False) -> bool:
        """Takes events, and does what is due; most of the time it only looks at the clock. True: it did."""
        now = clock()
        if now < self._next_turn and not at_once:
            return False
        self._next_turn = now + _TURN_US
        self.take_events(now)
        if (deadline := self.control.poll_timeout()) is not None and deadline <= now:
            self.control.handle_timeout(now)
        return True

    def take_events(self, now: int) -> None:
        """What became of messages is only counted; all else is the control's."""
        while events := self.endpoint.poll_events(_BATCH):
            for event in events:
                if type(event) is PublishedEvent:
                    is_distributed = event.reason in _DISTRIBUTED
                    self.acknowledged += is_distributed
                    self.failed += not is_distributed
                else:
                    self.control.handle_event(now, event)

    def resolve(self, topic: str) -> None:
        """Returns once the owner of a topic is known."""
        self.control.resolve(clock(), topic, patience=_PATIENCE_US)
        self._wait_for(Resolved)

    def subscribe(self, filter: str, options: Options) -> None:
        """Returns once every owner has the subscription."""
        self.control.subscribe(clock(), filter, options, patience=_PATIENCE_US)
        self._wait_for(Subscribed)

    def close(self) -> None:
        """Leaves, and stops the thread."""
        self.control.leave()
        self.endpoint.drain(0.2)
        self.endpoint.shutdown()

    def _wait_for(self, kind: type[Resolved] | type[Subscribed]) -> None:
        """Takes turns until the outcome is there. Raises NoAnswer for any other."""
        while (outcome := self.control.poll_outcome()) is None:
            self.endpoint.wait(0.01)
            self.turn(at_once=True)
        if not isinstance(outcome, kind):
            raise NoAnswer(f"hbroker: {outcome}")


class NativePublisher:
    """Publishes on the topics of all pairs, in turn, each through a client of its own."""

    def __init__(self, root: Address, pairs: int, qos: int) -> None:
        self._qos = qos
        self._topics = [topic_of(pair) for pair in range(pairs)]
        self._clients = [NativeClient(root, f"publisher-{pair}") for pair in range(pairs)]
        self._turn = 0
        for client, topic in zip(self._clients, self._topics, strict=True):
            client.resolve(topic)

    def publish(self, count: int) -> int:
        """Up to `count` messages on the next topic; returns how many the endpoint took."""
        self._turn = (self._turn + 1) % len(self._clients)
        publish, topic, qos = self._clients[self._turn].endpoint.publish, self._topics[self._turn], self._qos
        for sent in range(count):
            if publish(topic, FILLER, qos) is None:
                return sent
        return count

    def publish_one(self, payload: bytes) -> None:
        """One message on the next topic. Raises NoAnswer where there is no room for it."""
        self._turn = (self._turn + 1) % len(self._clients)
        if self._clients[self._turn].endpoint.publish(self._topics[self._turn], payload, self._qos) is None:
            raise NoAnswer("hbroker: no credit, at a rate that is far below its capacity")

    def turn(self) -> None:
        """Takes in what the broker answered."""
        client = self._clients[self._turn]
        if self._qos:
            client.take_events(clock())
        client.turn()

    @property
    def acknowledged(self) -> int:
        return sum(client.acknowledged for client in self._clients)

    def datagrams(self) -> int:
        """Sent to the broker so far."""
        return sum(client.endpoint.counters()["socket.datagrams_out"] for client in self._clients)

    def drain(self, timeout_s: float) -> None:
        """Blocks until all is sent and, where asked for, acknowledged."""
        for client in self._clients:
            client.endpoint.drain(timeout_s)
            client.turn(at_once=True)

    def close(self) -> None:
        """Leaves the network."""
        for client in self._clients:
            client.close()


class NativeSubscriber:
    """Receives the topics of all pairs, each through clients of their own."""

    def __init__(self, root: Address, pairs: int, qos: int, subscribers: int = 1) -> None:
        self.streams = [Stream(first=1) for _ in range(pairs * subscribers)]
        self.corrupted = 0
        self._clients = [NativeClient(root, f"subscriber-{index}") for index in range(len(self.streams))]
        for index, client in enumerate(self._clients):
            client.subscribe(topic_of(index // subscribers), Options(qos))

    def filenos(self) -> list[int]:
        """One for each client; readable while `take` has something."""
        return [client.endpoint.fileno() for client in self._clients]

    def take(self, index: int) -> int:
        """Takes a batch of one client's messages, and checks them; how many are new."""
        before = self.streams[index].received
        messages = self._take(index)
        self.corrupted += len(messages) - [message.payload for message in messages].count(FILLER)
        return self.streams[index].received - before

    def take_payloads(self, index: int) -> list[bytes]:
        """As `take`, for payloads that differ."""
        payloads = [message.payload for message in self._take(index)]
        self.corrupted += sum(len(payload) != PAYLOAD_BYTES for payload in payloads)
        return payloads

    def datagrams(self) -> int:
        """Received from the broker so far."""
        return sum(client.endpoint.counters()["socket.datagrams_in"] for client in self._clients)

    def close(self) -> None:
        """Leaves the network."""
        for client in self._clients:
            client.close()

    def _take(self, index: int) -> list[Message]:
        client = self._clients[index]
        messages = client.endpoint.poll_messages(_BATCH)
        self.streams[index].take([message.sequence for message in messages])
        client.turn(at_once=not messages)
        return messages
