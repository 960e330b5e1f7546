"""SUBACKs that list the subtrees and cuts of a node, in parts that each fit a datagram (§6.1).

A node with a thousand children names all of them. No path carries that in one datagram, and IP fragments
would be lost together, so the lists are split where a datagram is full. To serialise them takes milliseconds,
and any client may ask for them as often as it likes. So they are serialised once for all clients, until the
jurisdiction changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, TypeAlias

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.packets import PACKET_ROOM, Cut, cut_of, packed

__all__ = ["SubAcks"]

HEAD_STEP: Final = 128
"""The size of a head (all other fields of the SUBACK) is rounded up to a multiple of this many bytes, so that
SUBACKs with different heads can share lists."""
MOST_CACHED: Final = 16
"""The most lists that are cached."""


_Key: TypeAlias = tuple[tuple[int, ...], tuple[str, ...], int]
"""The identities of the children, the held subtrees, and the room for both."""


class SubAcks:
    """Serialises SUBACKs."""

    def __init__(self) -> None:
        self._cached: dict[_Key, tuple[Sequence[Delegation], list[bytes]]] = {}
        """The lists, with the children themselves: while these are stored, no other objects have their
        identities."""

    def of_children(
        self, ack: pb.SubAck, children: Sequence[Delegation], held: Sequence[str]
    ) -> Iterator[bytes]:
        """Serialised packets: `ack` with the cuts of these children and the held subtrees.

        The cut of a `Delegation` object never changes: another epoch or owner is another object.
        """
        head = ack.SerializeToString()
        key = tuple(map(id, children)), tuple(held), _max_list_bytes(head)
        known = self._cached.get(key)
        if known is None:
            if len(self._cached) >= MOST_CACHED:
                del self._cached[next(iter(self._cached))]
            lists = _lists((child.as_cut() for child in children), held, _max_list_bytes(head))
            known = self._cached[key] = children, lists
        return (packed("suback", head + part) for part in known[1])

    def of(self, ack: pb.SubAck, cuts: Iterable[Cut], held: Sequence[str]) -> Iterator[bytes]:
        """Serialised packets: `ack` with these cuts and subtrees."""
        head = ack.SerializeToString()
        return (packed("suback", head + part) for part in _lists(cuts, held, _max_list_bytes(head)))


def _max_list_bytes(head: bytes) -> int:
    steps = -(-len(head) // HEAD_STEP)
    return max(PACKET_ROOM - steps * HEAD_STEP, PACKET_ROOM // 2)


def _lists(cuts: Iterable[Cut], held: Sequence[str], max_bytes: int) -> list[bytes]:
    """The serialised fields `passed_to` and `held`: whole if they fit, else in numbered parts."""
    items = [pb.SubAck(passed_to=[cut_of(cut)]).SerializeToString() for cut in cuts]
    items += [pb.SubAck(held=[subtree]).SerializeToString() for subtree in held]
    chunks = list(_chunks(items, max_bytes))
    if len(chunks) <= 1:
        return chunks or [b""]
    digest = int.from_bytes(blake2b(b"".join(items), digest_size=8).digest())
    return [
        pb.SubAck(part=number, parts=len(chunks), list=digest).SerializeToString() + chunk
        for number, chunk in enumerate(chunks)
    ]


def _chunks(items: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Joins consecutive items as long as they fit. A single larger item goes alone."""
    chunk: list[bytes] = []
    size = 0
    for item in items:
        if chunk and size + len(item) > max_bytes:
            yield b"".join(chunk)
            chunk, size = [], 0
        chunk.append(item)
        size += len(item)
    if chunk:
        yield b"".join(chunk)
