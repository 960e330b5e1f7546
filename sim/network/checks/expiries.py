"""The rule that an expired message is not sent (§7.8), exactly.

A message expires by the clock of the node that has it. The check looks at the first datagram with which a
node sends a message to a session, as a new message or as a retained one. If the message has expired by then,
it must have been queued on the session's link before, and waited there:

- on the session's present link, if the session had that link when the message expired. The link may be slow,
  with much before the message; but not if the client grants little credit (§7.7): then no more waits there;
- on an earlier link, or at another node, if the session had such a link between the message's publication and
  its expiry. What was in flight there is sent again whenever its client comes back. By that node's clock the
  message may have expired later, by as much as two clocks of different rates have moved apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers

from ..hosts import NodeHost
from ..invariants import Invariant, Violation
from ..world import START, Address

__all__ = ["Expiries"]

LONGEST_WAIT: Final = timers.IDLE_TIMEOUT
"""The longest time that a message waits on a link with little credit: until the link is down. A node
that does not run ends no link."""


class Expiries:
    """Every message with an expiry, on its way to sessions."""

    def __init__(self) -> None:
        self._links: dict[int, dict[Address, int]] = {}
        """By session, the nodes that have a link to it, and since when."""
        self._past: dict[int, list[tuple[int, int]]] = {}
        """By session, the times of its former links."""
        self._sent: set[tuple[int, int, int, bool]] = set()
        """(session, publisher, sequence, as a retained message) of what was sent."""
        self._limited: set[int] = set()
        """The sessions whose clients grant little credit."""

    # Change

    def limit_wait(self, session: int) -> None:
        """A client grants little credit."""
        self._limited.add(session)

    def gain_link(self, session: int, node: Address, now: int) -> None:
        """A node has a link to a session."""
        self._links.setdefault(session, {}).setdefault(node, now)

    def lose_link(self, session: int, node: Address, now: int) -> None:
        """A node has lost its link to a session."""
        since = self._links.get(session, {}).pop(node, None)
        if since is not None:
            self._past.setdefault(session, []).append((since, now))

    def lose_node(self, node: Address, now: int) -> None:
        """A node died."""
        for session in self._links:
            self.lose_link(session, node, now)

    # Checks

    def check(self, node: NodeHost, datagram: pb.Datagram, now: int) -> Iterator[Violation]:
        """Checks a datagram that leaves a node."""
        for packet in datagram.packets:
            publish = packet.publish
            if not packet.HasField("publish") or not publish.HasField("expiry_s"):
                continue
            is_retained = packet.HasField("retained_for")
            key = datagram.header.session, publish.publisher, publish.sequence, is_retained
            late = node.core_clock() - publish.published_at_us - publish.expiry_s * timers.SECOND
            if key not in self._sent and late >= 0:
                died = now - node.world_duration(late)
                is_short = packet.delivery > 0 and key[0] in self._limited
                is_prompt = not is_short or late - node.stopped_time(died) < LONGEST_WAIT
                if not self._was_queued_before(
                    node, key[0], publish.published_at_us, died, is_prompt=is_prompt
                ):
                    text = f"{node.settings.name} sends {publish.topic}'s message {publish.sequence}"
                    text += f", which has been dead for {late / timers.SECOND:.3f} s"
                    yield Violation(now, Invariant.EXPIRES, text)
            self._sent.add(key)

    def _was_queued_before(
        self, node: NodeHost, session: int, published: int, died: int, *, is_prompt: bool
    ) -> bool:
        """Whether a message may have been queued on a link before it expired."""
        links = self._links.get(session, {})
        since = links.get(node.address)
        if since is not None and since <= died and is_prompt:
            return True
        most_ppm = max(abs(host.drift_ppm) for host in node.world.hosts.values())
        died_last = died + max(0, died - START) * 2 * most_ppm // 1_000_000
        elsewhere = [(since, died_last) for other, since in links.items() if other != node.address]
        return any(
            up <= died_last and down >= published for up, down in (*elsewhere, *self._past.get(session, ()))
        )
