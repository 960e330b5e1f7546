"""A polled client of the network. It does less than the Python API, and so it is fast enough for the load of
a test.

Like `hbroker.connect` and `hbroker.sync` it uses the native endpoint and the control
(`hbroker.protocol.client`). Messages go straight to `Endpoint.publish`, and come straight from
`Endpoint.poll_messages`.
"""

from __future__ import annotations

from random import SystemRandom
from typing import Final

from hbroker._native import Endpoint, PublishedEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.addresses import Address
from hbroker.protocol.client import ClientControl
from hbroker.protocol.results import Resolved, Subscribed
from hbroker.protocol.subscriptions.client.options import Options
from hbroker.runtime.client.dispatcher import new_endpoint
from hbroker.runtime.client.identity import Identity
from hbroker.runtime.control_loop import clock

__all__ = ["PolledClient"]

_PATIENCE_US: Final = 10_000_000
_TURN_US: Final = 20_000
"""The interval at which the control runs under load."""
_BATCH: Final = 1_024
_DISTRIBUTED: Final = (pb.REASON_SUCCESS, pb.REASON_NO_MATCHING_SUBSCRIBERS)


class PolledClient:
    """One endpoint and its control. `receive_messages`: as in `hbroker.runtime.client.identity.Profile`."""

    def __init__(self, root: Address, name: str, *, receive_messages: int = 4_096) -> None:
        identity = Identity.of(name, receive_messages=receive_messages).secured(root)
        self.endpoint: Endpoint = new_endpoint(("127.0.0.1", 0), identity)
        self.control = ClientControl(self.endpoint, SystemRandom(), root, identity.session_options)
        self.acknowledged = 0
        self.failed = 0
        """Messages of QoS 1 and 2 that failed."""
        self._next_turn = 0

    def turn(self, *, at_once: bool = False) -> None:
        """Handles events, and runs what is due. Most calls only look at the clock."""
        now = clock()
        if now < self._next_turn and not at_once:
            return
        self._next_turn = now + _TURN_US
        self._take_events(now)
        if (deadline := self.control.poll_timeout()) is not None and deadline <= now:
            self.control.handle_timeout(now)

    def resolve(self, topic: str) -> None:
        """Waits until the owner of a topic is known. Raises if it cannot be found."""
        self.control.resolve(clock(), topic, timeout=_PATIENCE_US)
        self._wait_for(Resolved)

    def subscribe(self, filter: str, options: Options) -> None:
        """Waits until every owner has the subscription. Raises if it fails."""
        self.control.subscribe(clock(), filter, options, timeout=_PATIENCE_US)
        self._wait_for(Subscribed)

    def close(self) -> None:
        """Leaves, and stops the thread."""
        self.control.leave()
        self.endpoint.drain(0.2)
        self.endpoint.shutdown()

    def _take_events(self, now: int) -> None:
        """Counts the outcome of messages. The control handles all other events."""
        while events := self.endpoint.poll_events(_BATCH):
            for event in events:
                if type(event) is PublishedEvent:
                    is_distributed = event.reason in _DISTRIBUTED
                    self.acknowledged += event.count * is_distributed
                    self.failed += event.count * (not is_distributed)
                else:
                    self.control.handle_event(now, event)

    def _wait_for(self, kind: type[Resolved] | type[Subscribed]) -> None:
        while (result := self.control.poll_result()) is None:
            self.endpoint.wait(0.01)
            self.turn(at_once=True)
        assert isinstance(result, kind), result
