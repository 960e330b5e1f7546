"""Makes the policy of a gateway as its settings say: from files, or from a class of the operator's own.

All policies of a process share the passwords that were verified, and the memory for hashes.
"""

from __future__ import annotations

import hmac
import importlib
import secrets
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final

from hbroker.config import AccessSettings
from hbroker.errors import ConfigError
from hbroker.gateway.access.file_policy import FilePolicy
from hbroker.gateway.access.password_file import MEMORY_KIB, Passwords
from hbroker.gateway.access.policy import Policy
from hbroker.runtime.gateway.files import read_rules, read_tokens, read_users
from hbroker.runtime.logs import EventLog

__all__ = ["MemoryBudget", "VerifiedPasswordCache", "load_policy"]

MOST_REMEMBERED: Final = 100_000


class VerifiedPasswordCache:
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
    def reserve(self, kib: int) -> Iterator[None]:
        """Waits for `kib` KiB, or for the whole budget if that is less, and holds them during the `with`
        block."""
        kib = min(kib, self._kib)
        reservation = object()
        with self._changed:
            self._queue.append(reservation)
            self._changed.wait_for(lambda: self._queue[0] is reservation and self._free >= kib)
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
    def queue_length(self) -> int:
        """The number of requests that wait."""
        return len(self._queue)


_verified = VerifiedPasswordCache(secrets.token_bytes(32))
_memory = MemoryBudget(MEMORY_KIB)


def load_policy(access: AccessSettings, hook: str = "") -> Policy:
    """Makes the policy. `hook`: `module:name` of a callable that makes it, called with `access`; empty: from
    files.

    Keys of tokens may come from a URL, for up to ten seconds. Raises ConfigErrors with all errors of a file,
    and ConfigError if the hook cannot be imported, or the keys cannot be read.
    """
    if hook:
        return _hooked(access, hook)
    hashes, rules = read_users(access), read_rules(access)
    users = None if hashes is None else Passwords(hashes, _verified, _memory.reserve)
    if users is not None and users.costly:
        EventLog("policy").warning(
            "password_hashes_costly",
            users=len(users.costly),
            remedy=f"a guess for one of them takes more than {MEMORY_KIB // 1024} MiB: "
            f"`hbroker passwd {access.passwords} USER` makes a smaller hash",
        )
    if users is not None and users.weak:
        EventLog("policy").warning(
            "password_hashes_weak",
            users=len(users.weak),
            remedy="they are one round of SHA-512, which is guessed fast from a stolen file: "
            f"`hbroker passwd {access.passwords} USER` makes a better hash",
        )
    anonymous = not access.proves_clients if access.anonymous is None else access.anonymous
    return FilePolicy(users, rules, tokens=read_tokens(access), anonymous=anonymous)


def _hooked(access: AccessSettings, hook: str) -> Policy:
    module, _, name = hook.partition(":")
    try:
        make = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        remedy = "name it as `module:name`, importable from here"
        raise ConfigError(f"no policy {hook!r}: {error}", file="command line", remedy=remedy) from None
    policy: Policy = make(access)
    return policy
