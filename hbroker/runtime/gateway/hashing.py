"""What the threads for password checks share: the passwords that were verified, and the memory for hashes."""

from __future__ import annotations

import hmac
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final

__all__ = ["MemoryBudget", "Verified"]

MOST_REMEMBERED: Final = 100_000


class Verified:
    """The passwords that were verified, as keyed hashes, one for each user. At most `most` are kept; the one
    that was used longest ago is discarded first.

    `secret`: a key of this process. The object may be used from several threads, and kept when the password
    file is read again: each digest covers the user's hash in that file, so a digest is useless once the hash
    changes.
    """

    def __init__(self, secret: bytes, most: int = MOST_REMEMBERED) -> None:
        self._key = blake2b(secret, digest_size=32).digest()
        self._most = most
        self._digests: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def add(self, user: str, hash: str, password: bytes) -> None:
        """Adds a password that was verified."""
        digest = self._digest(hash, password)
        with self._lock:
            self._digests.pop(user, None)
            self._digests[user] = digest
            if len(self._digests) > self._most:
                del self._digests[next(iter(self._digests))]

    def has(self, user: str, hash: str, password: bytes) -> bool:
        """Whether this password was verified before, for the same hash."""
        digest = self._digest(hash, password)
        with self._lock:
            known = self._digests.get(user)
            if known is None or not hmac.compare_digest(known, digest):
                return False
            self._digests[user] = self._digests.pop(user)
        return True

    def _digest(self, hash: str, password: bytes) -> bytes:
        return blake2b(hash.encode() + b"\0" + password, key=self._key, digest_size=32).digest()


class MemoryBudget:
    """A bounded memory for hashes. Requests are served in order, so a large one is not postponed for ever."""

    def __init__(self, kib: int) -> None:
        self._kib = self._free = kib
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, kib: int) -> Iterator[None]:
        """Waits for `kib` KiB, or for the whole budget if that is less, and holds them during the `with`
        block."""
        kib = min(kib, self._kib)
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            self._changed.wait_for(lambda: self._queue[0] is ticket and self._free >= kib)
            self._queue.popleft()
            self._free -= kib
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._free += kib
                self._changed.notify_all()

    @property
    def free(self) -> int:
        """KiB that are free."""
        return self._free

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return len(self._queue)
