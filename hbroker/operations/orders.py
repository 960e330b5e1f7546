"""Finds nodes and gives them orders (docs/protocol.md §5.7): for `hbroker leave`, `move` and `apply`, and the
HTTP API."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hbroker.errors import HBrokerError, LocalError, RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hbroker._native import Credentials
    from hbroker._proto import packet_pb2 as pb
    from hbroker.addresses import Address
    from hbroker.protocol.results import Resolution
    from hbroker.sync import Client


@dataclass(frozen=True, slots=True)
class Orders:
    """Gives orders to the nodes of a network. `key`: the join key. `credentials`: as in `give_order`.
    `timeout`: seconds for each order. `say` is called with each step."""

    client: Client
    key: bytes
    credentials: Credentials | None
    timeout: float
    say: Callable[[str], None]

    def give_subtree(self, subtree: str, node: str) -> tuple[Resolution, HBrokerError | None]:
        """Makes a node own a subtree: the present holder hands it back, and the node claims it.

        Returns the former owner, and the error if the node could not take the subtree. Raises Refused,
        Unreachable and LocalError if nothing has moved.
        """
        target = locate(self.client, node)
        before = self.client.resolve(subtree, trace=True)
        is_held = before.subtree == subtree
        if is_held and before.owner == node:
            return before, None
        if is_held:
            self.take_subtree(subtree, before.owner)
        try:
            self._order(target, node, subtree, is_claim=True)
        except RemoteError as error:
            return before, error
        return before, None

    def take_subtree(self, subtree: str, holder: str) -> None:
        """Makes the holder of a subtree hand it back to its parent. Raises the errors of `give_subtree`."""
        self._order(locate(self.client, holder), holder, subtree, is_claim=False)

    def leave(self, node: str) -> None:
        """Makes a node hand back all that it owns, and end. Returns once it has. Raises Refused,
        Unreachable and LocalError."""
        from hbroker._proto import packet_pb2 as pb

        say = partial(self.say, f"{node} hands back what it owns")
        self._give(locate(self.client, node), pb.Order(kind=pb.ORDER_KIND_LEAVE, node=node), say)

    def _order(self, address: Address, node: str, subtree: str, *, is_claim: bool) -> None:
        from hbroker._proto import packet_pb2 as pb

        kind = pb.ORDER_KIND_CLAIM if is_claim else pb.ORDER_KIND_HAND_BACK
        self.say(f"{node} takes {subtree}" if is_claim else f"{node} hands {subtree} back")
        self._give(address, pb.Order(kind=kind, node=node, subtree=subtree))

    def _give(self, address: Address, order: pb.Order, say: Callable[[], None] = lambda: None) -> None:
        from hbroker.runtime.client.admin_request import give_order

        give_order(
            address,
            order,
            join_key=self.key,
            credentials=self.credentials,
            timeout=self.timeout,
            on_under_way=say,
        )


def locate(client: Client, node: str) -> Address:
    """The address of a node, found by its own part of `$SYS`. Raises LocalError if no node has this name."""
    from hbroker._native import topic_is_valid

    if not node or "/" in node or not topic_is_valid(node):
        raise LocalError(f"{node!r} is not the name of a node: `hbroker tree` lists them")
    resolution = client.resolve(f"$SYS/nodes/{node}", trace=True)
    if resolution.owner != node:
        raise LocalError(f"no node is called {node!r} now: `hbroker tree` lists those that there are")
    return resolution.address


def require_subtree(subtree: str) -> None:
    """Raises LocalError if no node can be made the owner of this subtree."""
    from hbroker.subtree import is_grantable

    if not is_grantable(subtree):
        remedy = "name a topic prefix without wildcards and empty levels, as home/kitchen"
        raise LocalError(f"{subtree!r} is no subtree: {remedy}")
    if subtree.split("/")[0] == "$SYS":
        raise LocalError(f"{subtree!r} cannot be moved: every node owns its own part of $SYS")
