"""Operators of a network: they give orders to nodes, one after another (§5.7).

As with `hbroker leave` and `hbroker move`, the next order follows when the one before is done. An order that
is refused, or not done in time, ends the sequence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.admin.client import AdminClient
from hbroker.protocol.timers import earliest

from .hosts import Host, NodeHost
from .world import World

__all__ = ["Operator", "Step", "dismissal", "move"]

ORDER_TIMEOUT: Final = 30 * timers.SECOND
"""How long an order may take, as by default on the command line."""


@dataclass(frozen=True, slots=True)
class Step:
    """One order, and the node that it is for."""

    node: NodeHost
    kind: pb.OrderKind
    subtree: str = ""


def dismissal(node: NodeHost) -> list[Step]:
    """The orders of `hbroker leave`."""
    return [Step(node, pb.ORDER_KIND_LEAVE)]


def move(subtree: str, holder: NodeHost | None, target: NodeHost) -> list[Step]:
    """The orders of `hbroker move`. Without a holder the subtree is cut out of its owner's subtree."""
    hand_back = [] if holder is None else [Step(holder, pb.ORDER_KIND_HAND_BACK, subtree)]
    return [*hand_back, Step(target, pb.ORDER_KIND_CLAIM, subtree)]


class Operator(Host):
    """A host that gives orders to nodes. `has_ended`: the last one is done, or one was refused or timed
    out."""

    def __init__(self, world: World, steps: Iterable[Step]) -> None:
        super().__init__(world, world.new_address(), node=False, token_key=b"")
        self._steps = list(steps)
        self._times_out_at: int | None = None
        self.control: AdminClient = self._next()
        world.add(self)

    @property
    def answer(self) -> pb.OrderAck | None:
        """The latest answer to the latest order."""
        return self.control.answer

    @property
    def has_ended(self) -> bool:
        return self._times_out_at is None

    def process_events(self) -> None:
        super().process_events()
        while self.control.has_ended and not self.has_ended:
            answer = self.control.answer
            if self._steps and answer is not None and answer.done:
                self.control = self._next()
                super().process_events()
            else:
                self._end()

    def handle_timeout(self) -> None:
        if self._times_out_at is not None and self.clock() >= self._times_out_at:
            self._end()
        else:
            super().handle_timeout()

    def poll_timeout(self) -> int | None:
        return earliest(super().poll_timeout(), self._times_out_at)

    def _end(self) -> None:
        self._times_out_at = None
        self.world.remove(self)

    def _next(self) -> AdminClient:
        step = self._steps.pop(0)
        settings = step.node.settings
        order = pb.Order(kind=step.kind, node=settings.name, subtree=step.subtree)
        admin_client = AdminClient(self.engine, self.world.random, settings.listen, order, settings.join_key)
        admin_client.start(self.clock())
        self._times_out_at = self.clock() + ORDER_TIMEOUT
        return admin_client
