"""The file of user names and passwords, one `user:hash` a line.

Hashes are argon2id's, which `hbroker passwd` and mosquitto_passwd since 2.1 write, those of earlier versions
of mosquitto_passwd (`$7$` PBKDF2, `$6$` one round of SHA-512), or verifiers for SCRAM (`hbroker passwd
--scram`). A check of an argon2id hash takes tens of milliseconds, on purpose. So a right password is
remembered as a keyed hash, whose key only this process has: devices that all come back at once do not wait,
and no password is in memory. It is remembered until the file has another hash for the user.

argon2id also takes memory, and a client that guesses passwords makes the gateway spend it. So a hash that
hbroker makes takes 9 MiB (RFC 9106 §4 leaves the sizes open; OWASP names these). All hashes that are computed
at once share 18 MiB. A hash that alone takes more, such as mosquitto's with 46 MiB, is computed alone.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from binascii import Error as Base64Error
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from hashlib import pbkdf2_hmac, sha256, sha512
from typing import Final, Protocol

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError

from hbroker.errors import ConfigError, ConfigErrors
from hbroker.gateway.access.scram import ScramVerifier

__all__ = [
    "MEMORY_KIB",
    "Passwords",
    "VerifiedPasswords",
    "hash_password",
    "parse",
    "with_user",
    "without_user",
]

MEMORY_KIB: Final = 18 * 1024
"""Memory of all hashes that are computed at once in this process. A hash that alone takes more is computed
alone."""

_PBKDF2: Final = "$7$"
_SHA512: Final = "$6$"
_ARGON2: Final = "$argon2id$"
_MOST_ITERATIONS: Final = 10_000_000
_MOST_KIB: Final = 1024 * 1024

_PASSES: Final = 4
_EACH_KIB: Final = MEMORY_KIB // 2
_NOBODY: Final = (
    f"$argon2id$v=19$m={_EACH_KIB},t={_PASSES},p=1$bm9ib2R5J3Mgc2FsdA$bm9ib2R5IGhhcyB0aGlzIHBhc3N3b3Jk"
)

_hasher: Final = PasswordHasher(time_cost=_PASSES, memory_cost=_EACH_KIB, parallelism=1)


def hash_password(password: str) -> str:
    """A new hash of a password, with its own salt."""
    return _hasher.hash(password)


class VerifiedPasswords(Protocol):
    """Passwords that were right, as keyed hashes."""

    def add(self, user: str, hash: str, password: bytes) -> None:
        """Remembers a right password."""

    def has(self, user: str, hash: str, password: bytes) -> bool:
        """Whether this password was right before, for a user with this hash."""


class Passwords:
    """The users of one file. Thread-safe if `verified` and `memory` are.

    `verified`: remembered passwords, also from former versions of the file. `memory`: a context manager that
    waits for this number of KiB, and holds them.
    """

    def __init__(
        self,
        hashes: Mapping[str, str],
        verified: VerifiedPasswords,
        memory: Callable[[int], AbstractContextManager[None]] = lambda kib: nullcontext(),
    ) -> None:
        self._hashes = dict(hashes)
        self._verified = verified
        self._memory = memory
        self._decoy = _decoy(self._hashes.values())

    def scram_verifier(self, user: str) -> tuple[ScramVerifier, str] | None:
        """The user's SCRAM verifier, and its line in the file; None: the user has none."""
        hash = self._hashes.get(user, "")
        verifier = ScramVerifier.parse(hash)
        return None if verifier is None else (verifier, hash)

    @property
    def scram_secret(self) -> bytes:
        """A secret of this file: a hash of all that is in it."""
        return sha256("\n".join(sorted(self._hashes.values())).encode()).digest()

    @property
    def has_scram(self) -> bool:
        """Whether a user has a SCRAM verifier."""
        return any(ScramVerifier.parse(hash) is not None for hash in self._hashes.values())

    def hash_of(self, user: str) -> str | None:
        """The hash of a user in the file; None: there is no such user."""
        return self._hashes.get(user)

    @property
    def costly(self) -> list[str]:
        """Users whose hash alone takes more memory than `MEMORY_KIB`."""
        return [user for user, hash in self._hashes.items() if _memory_kib(hash) > MEMORY_KIB]

    @property
    def weak(self) -> list[str]:
        """Users whose hash is one round of SHA-512. Whoever has the file can guess them fast."""
        return [user for user, hash in self._hashes.items() if hash.startswith(_SHA512)]

    def is_remembered(self, user: str, password: bytes) -> bool:
        """Whether this password is remembered as right. If not, `verify` must decide."""
        hash = self._hashes.get(user)  # Also for an unknown user: the time must not tell which names exist.
        return self._verified.has(user, hash or "", password)

    def verify(self, user: str, password: bytes) -> bool:
        """Whether this is the user's password. Takes tens of milliseconds, and longer while others are
        verified."""
        hash = self._hashes.get(user)
        compared = self._decoy if hash is None else hash
        with self._memory(_memory_kib(compared)):
            is_right = _matches(compared, password)
        if hash is None or not is_right:
            return False
        self._verified.add(user, hash, password)
        return True


def parse(text: str, file: str) -> dict[str, str]:
    """Hashes by user name. Raises ConfigErrors with every error in the file."""
    errors: list[ConfigError] = []
    hashes: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, hash = line.strip().partition(":")
        wrong: tuple[str, str] | None = None
        if not colon or not user:
            wrong = ("this is not `user:hash`", "make the line with `hbroker passwd FILE USER`")
        elif user in hashes:
            wrong = (f"the user {user!r} has a second password", "keep one of the lines")
        elif not _is_hash(hash):
            shown = "a password in plain text, or a hash that is not known here"
            wrong = (f"behind {user!r} stands {shown}", f"run `hbroker passwd {file} {user}`")
        if wrong is not None:
            errors.append(ConfigError(wrong[0], file=file, line=number, remedy=wrong[1]))
        else:
            hashes[user] = hash
    if errors:
        raise ConfigErrors(errors)
    return hashes


def with_user(text: str, user: str, hash: str) -> str:
    """The text of a file with this user's hash, in the line of the user's former hash if there is one."""
    lines = text.splitlines()
    entry = f"{user}:{hash}"
    places = [index for index, line in enumerate(lines) if line.partition(":")[0] == user]
    if places:
        lines[places[0]] = entry
    else:
        lines.append(entry)
    return "\n".join(lines) + "\n"


def without_user(text: str, user: str) -> str | None:
    """The text of a file without this user; None: it has no such user."""
    lines = text.splitlines()
    kept = [line for line in lines if line.partition(":")[0] != user]
    return None if len(kept) == len(lines) else "".join(f"{line}\n" for line in kept)


def _decoy(hashes: Collection[str]) -> str:
    """The hash that a password is compared with if its user is unknown: as costly as most hashes of the
    file."""
    most = Counter(map(_cost, hashes)).most_common(1)
    return next(hash for hash in hashes if _cost(hash) == most[0][0]) if most else _NOBODY


def _cost(hash: str) -> str:
    """Kind and parameters of a hash, without salt and digest."""
    return hash.rpartition("$")[0].rpartition("$")[0]


def _memory_kib(hash: str) -> int:
    return extract_parameters(hash).memory_cost if hash.startswith(_ARGON2) else 0


def _is_hash(hash: str) -> bool:
    if hash.startswith(_PBKDF2):
        return _pbkdf2_parts(hash) is not None
    if hash.startswith(_SHA512):
        return _sha512_parts(hash) is not None
    if ScramVerifier.parse(hash) is not None:
        return True
    try:
        return hash.startswith(_ARGON2) and _memory_kib(hash) <= _MOST_KIB
    except InvalidHashError:
        return False


def _matches(hash: str, password: bytes) -> bool:
    verifier = ScramVerifier.parse(hash)
    if verifier is not None:
        return verifier.verify(password)
    if hash.startswith(_SHA512):
        salted = _sha512_parts(hash)
        return salted is not None and hmac.compare_digest(salted[1], sha512(password + salted[0]).digest())
    if not hash.startswith(_PBKDF2):
        try:
            return _hasher.verify(hash, password)
        except (VerificationError, InvalidHashError):
            return False
    parts = _pbkdf2_parts(hash)
    if parts is None:
        return False
    iterations, salt, wanted = parts
    return hmac.compare_digest(wanted, pbkdf2_hmac("sha512", password, salt, iterations, len(wanted)))


def _pbkdf2_parts(hash: str) -> tuple[int, bytes, bytes] | None:
    """Iterations, salt and digest of `$7$iterations$salt$digest`; None: it has another form or other
    bounds."""
    number, _, salted = hash.removeprefix(_PBKDF2).partition("$")
    parts = _salt_and_digest(salted)
    if parts is None or not (number.isascii() and number.isdigit()) or len(number) > 8:
        return None
    iterations, (salt, digest) = int(number), parts
    is_sound = 1 <= iterations <= _MOST_ITERATIONS and 16 <= len(digest) <= 64
    return (iterations, salt, digest) if is_sound else None


def _sha512_parts(hash: str) -> tuple[bytes, bytes] | None:
    """Salt and digest of `$6$salt$digest`; None: it has another form."""
    parts = _salt_and_digest(hash.removeprefix(_SHA512))
    return parts if parts is not None and len(parts[1]) == 64 else None


def _salt_and_digest(text: str) -> tuple[bytes, bytes] | None:
    """Both of `salt$digest`, in base64; None: it has another form, or no salt."""
    parts = text.split("$")
    try:
        salt, digest = (b64decode(part, validate=True) for part in parts)
    except (Base64Error, ValueError):
        return None
    return (salt, digest) if salt else None
