"""A publisher and a subscriber. Every message must arrive in order, whatever else happens in the network."""

from __future__ import annotations

import threading

from hbroker import sync
from tests.product.network import PATIENCE
from tests.waiting import until

TOPIC = "loss-check/count"
PAUSE_S = 0.005
"""The pause between two messages. The check shares a process, and the interpreter lock, with the attacker."""


class LossCheck:
    """Publishes numbers at QoS 1 from one client to another while the block runs. Call `verify` after the
    block."""

    def __init__(self, root: str, topic: str = TOPIC) -> None:
        self.topic = topic
        self.published = 0
        self.received: list[int] = []
        self._errors: list[BaseException] = []
        self._ending = threading.Event()
        self._is_reading = True
        self._publisher = sync.connect(root)
        self._subscriber = sync.connect(root)
        self._messages = self._subscriber.subscribe(topic, qos=1)
        self._publishing = threading.Thread(target=self._guard, args=(self._publish,))
        self._reading = threading.Thread(target=self._guard, args=(self._read,))

    def __enter__(self) -> LossCheck:
        self._publishing.start()
        self._reading.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Only when the last message has been acknowledged is the number of messages to read known.
        self._ending.set()
        self._publishing.join(PATIENCE)
        self._is_reading = False
        self._reading.join(PATIENCE)
        self._messages.close()
        self._subscriber.close()
        self._publisher.close()

    def await_published(self, count: int) -> None:
        """Waits until `count` messages have been published, so that traffic is there however short the
        attack is."""
        until(lambda: self.published >= count, f"{count} messages", PATIENCE, found=lambda: self._errors)

    def verify(self) -> None:
        """Checks that every published message has arrived once, in order."""
        assert self._errors == []
        assert self.received == list(range(self.published))

    def _publish(self) -> None:
        while not self._ending.wait(PAUSE_S):
            self._publisher.publish(self.topic, str(self.published), qos=1, timeout=PATIENCE)
            self.published += 1

    def _read(self) -> None:
        while self._is_reading or len(self.received) < self.published:
            message = self._messages.next(timeout=0.5)
            if message is not None:
                self.received.append(int(message.payload))

    def _guard(self, work: object) -> None:
        assert callable(work)
        try:
            work()
        except Exception as error:
            self._errors.append(error)
