"""A SUBACK whose list of children is too long for one datagram comes in several (§6.1).

A node with a thousand children names them all. No path carries that in one datagram, and IP fragments are
lost together; so the list is cut where a datagram is full. Outside of a session any part may be lost: the
request is repeated until every part has come. Parts of two answers complete each other as long as both give
the same list, which `list` tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import PACKET_ROOM

__all__ = ["Parts", "in_parts", "is_last"]

MOST_PARTS: Final = 10_000


def in_parts(ack: pb.SubAck, cuts: Sequence[pb.Cut]) -> Iterator[pb.SubAck]:
    """`ack` with `cuts` as its `passed_to`: whole where it fits, else in parts that each fit."""
    chunks = list(_chunks(cuts, max(PACKET_ROOM - ack.ByteSize(), PACKET_ROOM // 2)))
    if len(chunks) <= 1:
        ack.passed_to.extend(cuts)
        yield ack
        return
    digest = blake2b(b"".join(cut.SerializeToString() for cut in cuts), digest_size=8).digest()
    for number, chunk in enumerate(chunks):
        part = pb.SubAck(part=number, parts=len(chunks), list=int.from_bytes(digest), passed_to=chunk)
        part.MergeFrom(ack)
        yield part


def is_last(suback: pb.SubAck) -> bool:
    """Whether, within a session, where packets come in order, the answer is whole with this part."""
    return suback.part + 1 >= suback.parts


@dataclass(slots=True)
class Parts:
    """Which parts of one node's answer have come. `named`: the cuts in them (subtree, epoch)."""

    list: int = 0
    missing: set[int] | None = field(default=None)
    """None: none has come yet."""
    named: set[tuple[str, int]] = field(default_factory=set)

    def take(self, suback: pb.SubAck) -> bool:
        """Takes note of one part. True: the answer is whole. A part of another list begins anew."""
        if suback.parts > MOST_PARTS:
            return False
        if self.missing is None or self.list != suback.list or not suback.parts:
            self.list, self.missing, self.named = suback.list, set(range(suback.parts)), set()
        self.missing.discard(suback.part)
        self.named.update((cut.subtree, cut.epoch) for cut in suback.passed_to)
        return not self.missing


def _chunks(cuts: Sequence[pb.Cut], room: int) -> Iterator[list[pb.Cut]]:
    """Runs of cuts that fit; a single larger cut goes alone."""
    chunk: list[pb.Cut] = []
    size = 0
    for cut in cuts:
        length = cut.ByteSize() + _FIELD_BYTES
        if chunk and size + length > room:
            yield chunk
            chunk, size = [], 0
        chunk.append(cut)
        size += length
    if chunk:
        yield chunk


_FIELD_BYTES: Final = 3
"""What a repeated message takes beside its content, up to 16 KiB."""
