"""Opens sealed datagrams with the secrets that processes have logged (ADR 35).

`HBROKER_KEYLOG` names the file. Processes append a line to it for each direction of each association:

    SEAL  id of the association (16 digits)  algorithm  secret (64 digits)

A sealed datagram is in `native/src/association/packet.rs`:

    kind and epoch (1 byte)  id (8)  lower half of the number (4)     sealed bytes, tag (16)

Whoever has the file can read all that passes on these associations, and send as either end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

__all__ = ["KeyLog", "Opened"]

_HEADER: Final = 13
_SEALED: Final = 0x07
_EPOCH_SHIFT: Final = 3
_EPOCHS: Final = 4
"""A datagram says its epoch modulo this."""
_DATAGRAMS_PER_EPOCH: Final = 1 << 22
_ALGORITHMS: Final[dict[str, tuple[type[AESGCM | ChaCha20Poly1305], int]]] = {
    "AES-128-GCM": (AESGCM, 16),
    "ChaCha20-Poly1305": (ChaCha20Poly1305, 32),
}


class KeyLog:
    """The secrets in a file, and those that are appended later. Raises OSError if it cannot be read."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = path
        self._offset = 0
        self._directions: dict[bytes, _Direction] = {}
        self._read()

    def open(self, datagram: bytes) -> Opened | None:
        """What is in a datagram; None: it is not sealed, its secret is not known, or it was changed."""
        if len(datagram) <= _HEADER or not _is_sealed(datagram[0]):
            return None
        association = datagram[1:9]
        if association not in self._directions:
            self._read()
        direction = self._directions.get(association)
        return None if direction is None else direction.open(datagram)

    def _read(self) -> None:
        """Reads the lines that were appended. Another process may be writing the last."""
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            *lines, incomplete = file.read().split(b"\n")
            self._offset = file.tell() - len(incomplete)
        for line in lines:
            match line.decode("ascii", "replace").split():
                case ["SEAL", association, algorithm, secret] if algorithm in _ALGORITHMS:
                    try:
                        key, value = bytes.fromhex(association), bytes.fromhex(secret)
                    except ValueError:
                        continue
                    self._directions.setdefault(key, _Direction(algorithm, value))


@dataclass(frozen=True, slots=True)
class Opened:
    """What was sealed in a datagram, and how."""

    data: bytes
    _header: bytes
    _key: _Key
    _number: int

    def with_data(self, data: bytes) -> bytes:
        """The datagram with other data, as one who has the keys can make it."""
        return self._header + self._key.seal(self._number, data, self._header)


class _Key:
    """The key of one epoch of one direction."""

    def __init__(self, algorithm: str, secret: bytes) -> None:
        cipher, length = _ALGORITHMS[algorithm]
        self._cipher = cipher(_derive(secret, b"key", 32)[:length])
        self._iv = int.from_bytes(_derive(secret, b"iv", 12), "big")

    def open(self, number: int, sealed: bytes, header: bytes) -> bytes | None:
        try:
            return self._cipher.decrypt(self._nonce(number), sealed, header)
        except InvalidTag:
            return None

    def seal(self, number: int, data: bytes, header: bytes) -> bytes:
        return self._cipher.encrypt(self._nonce(number), data, header)

    def _nonce(self, number: int) -> bytes:
        return (self._iv ^ number).to_bytes(12, "big")


class _Direction:
    """The keys of one direction. The secret of each epoch makes that of the next."""

    def __init__(self, algorithm: str, secret: bytes) -> None:
        self._algorithm = algorithm
        self._secrets = [secret]
        self._keys: dict[int, _Key] = {}
        self._epoch = 0
        self._end = 0
        """The highest number that was opened, and one more."""

    def open(self, datagram: bytes) -> Opened | None:
        header = datagram[:_HEADER]
        number = self._whole(int.from_bytes(header[9:], "big"))
        for epoch in self._epochs(header[0] >> _EPOCH_SHIFT, number):
            key = self._key(epoch)
            data = key.open(number, datagram[_HEADER:], header)
            if data is not None:
                self._epoch, self._end = max(self._epoch, epoch), max(self._end, number + 1)
                return Opened(data, header, key, number)
        return None

    def _epochs(self, said: int, number: int) -> Iterator[int]:
        """The epochs that a datagram may be of: near the last, or, if a capture began late, as its number
        says."""
        for first in {self._epoch, number // _DATAGRAMS_PER_EPOCH}:
            for epoch in (first, first + 1, first - 1):
                if epoch >= 0 and epoch % _EPOCHS == said % _EPOCHS:
                    yield epoch

    def _key(self, epoch: int) -> _Key:
        while len(self._secrets) <= epoch:
            self._secrets.append(_derive(self._secrets[-1], b"next", 32))
        if epoch not in self._keys:
            self._keys = {near: key for near, key in self._keys.items() if abs(near - epoch) <= 1}
            self._keys[epoch] = _Key(self._algorithm, self._secrets[epoch])
        return self._keys[epoch]

    def _whole(self, lower: int) -> int:
        """The number whose lower half this is: the one closest to the next expected (RFC 9000 A.3)."""
        span = 1 << 32
        candidate = self._end // span * span + lower
        if candidate + span // 2 <= self._end:
            return candidate + span
        if candidate > self._end + span // 2 and candidate >= span:
            return candidate - span
        return candidate


def _is_sealed(kind: int) -> bool:
    return kind & ~((_EPOCHS - 1) << _EPOCH_SHIFT) == _SEALED


def _derive(secret: bytes, label: bytes, length: int) -> bytes:
    return HKDFExpand(SHA256(), length, b"hbroker " + label).derive(secret)
