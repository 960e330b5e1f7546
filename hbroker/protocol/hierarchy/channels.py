"""Authenticated packets between child and parent, if the network has a join key (§5.5).

A *channel* is what the two ends of one link share: one key for each direction, derived from the join key, a
nonce of each end and the parent's address. Each packet is counted, and has a tag under the key of its
direction:

        child                                        parent
            nonce  ------------------------------------>
                   <------------------------------------  nonce: a keyed hash, nothing is stored
            nonce, 1, JOIN, tag  ---------------------->  opens the channel
                   <------------------------------------  1, JOINACK, tag
            2, ...  ----------------------------------->

So a recorded packet is useless: on another link, at another node, or after a restart of either end the nonces
differ, and on the same link its number has passed. If a number is missing, a forged packet took the place of
the missing one. Then the link is closed, because the missing packet may be part of a handover.

`Channels.authenticated_core` returns a core that does all this for whoever sends over it. Links to clients
have no channel.
"""

from __future__ import annotations

import hmac
from random import Random
from typing import Any, Final, cast

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.core import NodeCore
from hbroker.protocol.events import Diagnostics
from hbroker.protocol.hierarchy.join_proofs import Nonces
from hbroker.protocol.packets import Address, address_of, pack

__all__ = ["Channels"]

TAG: Final = 16
"""The length of a tag in bytes."""
MOST_WAITING: Final = 64
"""The most packets that wait for the parent's nonce. Before its first grant, a child sends nothing but
JOIN."""


class _Channel:
    """One end of a channel."""

    def __init__(self, key: bytes, nonces: tuple[int, int], parent: Address, *, is_child: bool) -> None:
        """`nonces`: the child's and the parent's."""
        where = address_of(parent).SerializeToString(deterministic=True)
        salt = b"".join(nonce.to_bytes(8, "big") for nonce in nonces)
        shared = hmac.digest(key, b"hbroker link" + salt + where, "sha256")
        up, down = (hmac.digest(shared, way, "sha256") for way in (b"up", b"down"))
        self._sending, self._receiving = (up, down) if is_child else (down, up)
        self.sent = self.received = 0
        """The numbers of the last packets."""

    def tag(self, packet: bytes) -> bytes:
        """The tag of the next packet to send."""
        return _tag(self._sending, self.sent + 1, packet)

    def is_authentic(self, message: pb.Authenticated) -> bool:
        """Whether the other end of this channel made the packet, now or earlier."""
        made = _tag(self._receiving, message.sequence, message.packet)
        return hmac.compare_digest(made, message.tag)


class _ParentLink:
    """A link to a parent, from the child's nonce on."""

    def __init__(self, parent: Address, nonce: int) -> None:
        self.parent = parent
        self.nonce = nonce
        self.channel: _Channel | None = None
        """None: the parent's nonce has not arrived."""
        self.pending_packets: list[bytes] = []
        """The packets that wait for the parent's nonce."""
        self.is_proved = False
        """Whether the parent has proved the join key."""


class Channels:
    """The channels of one node. `key`: the join key; empty: there are no channels. `address`: this node's."""

    def __init__(
        self,
        core: NodeCore,
        key: bytes,
        address: Address,
        random: Random,
        nonces: Nonces,
        diagnostics: Diagnostics,
    ) -> None:
        self._core = core
        self._key = key
        self._address = address
        self._random = random
        self._nonces = nonces
        self._diagnostics = diagnostics
        self._parent_links: dict[int, _ParentLink] = {}
        self._child_channels: dict[int, _Channel] = {}
        """Channels to children, by link. A link without a proved packet has none, and no memory here."""

    def authenticated_core(self) -> NodeCore:
        """The core, whose packets over links to parents and children are authenticated."""
        return cast(NodeCore, _AuthenticatedCore(self._core, self)) if self._key else self._core

    # Out

    def connect(self, address: Address, token: bytes = b"") -> int:
        """Opens a link to a parent, or returns the present one. Begins a channel on a new link."""
        link = self._core.connect(address, token)
        if link not in self._parent_links:
            parent_link = self._parent_links[link] = _ParentLink(address, self._random.getrandbits(64) or 1)
            self._core.send(link, pack(pb.Authenticated(nonce=parent_link.nonce)))
        return link

    def send(self, link: int, packet: bytes) -> bool:
        """Sends a packet, authenticated if the link has a channel. False: the link has no room, or there is
        no link."""
        parent_link = self._parent_links.get(link)
        if parent_link is None:
            channel = self._child_channels.get(link)
            return (
                self._core.send(link, packet)
                if channel is None
                else self._send_authenticated(link, channel, packet)
            )
        if parent_link.channel is not None:
            nonce = 0 if parent_link.is_proved else parent_link.nonce
            return self._send_authenticated(link, parent_link.channel, packet, nonce)
        if len(parent_link.pending_packets) >= MOST_WAITING:
            return False
        parent_link.pending_packets.append(packet)
        return True

    def _send_authenticated(self, link: int, channel: _Channel, packet: bytes, nonce: int = 0) -> bool:
        tag, sequence = channel.tag(packet), channel.sent + 1
        proved = pb.Authenticated(nonce=nonce, sequence=sequence, tag=tag, packet=packet)
        if not self._core.send(link, pack(proved)):
            return False
        channel.sent = sequence
        return True

    # In

    def admits(self, link: int, body: object) -> bool:
        """Whether a packet that arrived over this link may be used without authentication."""
        if not self._key:
            return True
        is_of_nodes = isinstance(body, pb.Authenticated | pb.Join | pb.JoinAck | pb.Transfer | pb.Revoked)
        is_return = isinstance(body, pb.Leave) and bool(body.subtree)
        return not (is_of_nodes or is_return or link in self._parent_links)

    def open(self, link: int, message: pb.Authenticated) -> bytes | None:
        """The packet in AUTHENTICATED, which arrived over this link; None: there is none, or it is not
        proved."""
        parent_link = self._parent_links.get(link)
        if not message.packet:
            if parent_link is None:
                self._core.send(link, pack(pb.Authenticated(nonce=self._own_nonce(link))))
            else:
                self._take_nonce(link, parent_link, message.nonce)
            return None
        channel = self._of_parent(parent_link, message) if parent_link else self._of_child(link, message)
        if channel is None:
            self._diagnostics.drop("unauthenticated")
        elif message.sequence <= channel.received:
            self._diagnostics.drop("replayed")
        elif message.sequence > channel.received + 1:
            self._diagnostics.drop("out_of_sequence")
            self._core.close(link)
        else:
            channel.received = message.sequence
            return message.packet
        return None

    def handle_link_down(self, link: int) -> None:
        """Removes the channel of a link that ended."""
        self._parent_links.pop(link, None)
        self._child_channels.pop(link, None)

    # As a child

    def _take_nonce(self, link: int, parent_link: _ParentLink, nonce: int) -> None:
        if parent_link.channel is not None or not nonce:
            self._diagnostics.drop("unexpected_packet")
            return
        parent_link.channel = _Channel(
            self._key, (parent_link.nonce, nonce), parent_link.parent, is_child=True
        )
        waiting, parent_link.pending_packets = parent_link.pending_packets, []
        for packet in waiting:
            self._send_authenticated(link, parent_link.channel, packet, parent_link.nonce)

    def _of_parent(self, parent_link: _ParentLink, message: pb.Authenticated) -> _Channel | None:
        channel = parent_link.channel
        if channel is None or not channel.is_authentic(message):
            return None
        parent_link.is_proved = True
        return channel

    # As a parent

    def _of_child(self, link: int, message: pb.Authenticated) -> _Channel | None:
        channel = self._child_channels.get(link)
        if channel is not None and channel.is_authentic(message):
            return channel
        if channel is not None or message.sequence != 1:
            return None
        nonces = message.nonce, self._own_nonce(link)
        channel = _Channel(self._key, nonces, self._address, is_child=False)
        if not channel.is_authentic(message):
            return None
        self._child_channels[link] = channel
        return channel

    def _own_nonce(self, link: int) -> int:
        """This node's nonce for a link. Each link of this run has its own number."""
        return self._nonces.of("link", link)


class _AuthenticatedCore:
    """A core whose links to parents and children have channels."""

    def __init__(self, core: NodeCore, channels: Channels) -> None:
        self._core = core
        self.connect = channels.connect
        self.send = channels.send

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._core, verb)


def _tag(key: bytes, sequence: int, packet: bytes) -> bytes:
    return hmac.digest(key, sequence.to_bytes(8, "big") + packet, "sha256")[:TAG]
