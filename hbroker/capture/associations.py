"""The datagrams of associations, as far as others can see them (ADR 35).

What is sealed can be read with a log of the keys alone. Without one a capture shows who sends how much to
whom, and the handshakes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from hbroker.runtime.key_log import KeyLog

__all__ = ["AssociationDatagram", "Associations", "first_of_association"]

_SEALED_EPOCHS: Final = {0x07: 0, 0x0F: 1, 0x17: 2, 0x1F: 3}
_HANDSHAKE: Final = 0x27
_RETRY: Final = 0x2F
_RESET: Final = 0x37
_SEALED_LEAST: Final = 29
_HANDSHAKE_LEAST: Final = 26
_RETRY_BYTES: Final = 30
_RESET_BYTES: Final = 17
_TOKENS: Final = (0, 21)
_MOST_OFFSET: Final = 32 * 1024
_REMEMBERED: Final = 100_000


@dataclass(frozen=True, slots=True)
class AssociationDatagram:
    """One datagram. `kind`: "sealed", "handshake", "retry" or "reset". `to`: the id of the association at the
    receiver; 0: it has none. `data`: what was sealed; None: nothing, or it cannot be opened."""

    kind: str
    to: int = 0
    data: bytes | None = None


class Associations:
    """Recognises the datagrams of associations.

    Other protocols have datagrams that begin with the same byte. So a sealed one is recognised if it can be
    opened, or if the handshake of its association was seen. `key_log`: None: nothing can be opened.
    """

    def __init__(self, key_log: KeyLog | None = None) -> None:
        self._key_log = key_log
        self._ids: set[int] = set()
        self._order: deque[int] = deque()

    def look(self, datagram: bytes) -> AssociationDatagram | None:
        """None: it is not recognised."""
        kind, size = datagram[:1], len(datagram)
        to = int.from_bytes(datagram[1:9], "big")
        if not kind:
            return None
        match kind[0]:
            case first if first in _SEALED_EPOCHS and size >= _SEALED_LEAST:
                opened = None if self._key_log is None else self._key_log.open(datagram)
                if opened is not None:
                    return AssociationDatagram("sealed", to, opened.data)
                return AssociationDatagram("sealed", to) if to in self._ids else None
            case first if first == _HANDSHAKE and size >= _HANDSHAKE_LEAST:
                return self._handshake(datagram, to)
            case first if first == _RETRY and size == _RETRY_BYTES:
                return AssociationDatagram("retry", to)
            case first if first == _RESET and size == _RESET_BYTES:
                return AssociationDatagram("reset")
            case _:
                return None

    def _handshake(self, datagram: bytes, to: int) -> AssociationDatagram | None:
        sender, token_bytes = int.from_bytes(datagram[9:17], "big"), datagram[17]
        offset = int.from_bytes(datagram[18 + token_bytes : 22 + token_bytes], "big")
        if not sender or token_bytes not in _TOKENS or offset > _MOST_OFFSET:
            return None
        self._remember(sender)
        return AssociationDatagram("handshake", to)

    def _remember(self, association: int) -> None:
        if association in self._ids:
            return
        self._ids.add(association)
        self._order.append(association)
        if len(self._order) > _REMEMBERED:
            self._ids.discard(self._order.popleft())


def first_of_association(data: bytes) -> int | None:
    """How many bytes the first datagram has, if these are several of one association (`trains`) or one. None:
    it is of no association."""
    kind = data[0] if data else None
    if kind in _SEALED_EPOCHS:
        ids, least = data[1:9], _SEALED_LEAST
    elif kind == _HANDSHAKE:
        ids, least = data[1:17], _HANDSHAKE_LEAST
    else:
        return len(data) if kind in (_RETRY, _RESET) else None
    at = data.find(ids, least + 1)  # The ids are random: these are of the next datagram.
    return at - 1 if at > 0 and data[at - 1] == kind else len(data)
