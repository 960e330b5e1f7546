"""User names and passwords: a file with one `user:hash` a line.

Hashes are argon2id's, as `hbroker passwd` and mosquitto_passwd since 2.1 write them, or the PBKDF2 hashes
(`$7$`) of mosquitto_passwd before. A hash costs tens of milliseconds, on purpose. So what was verified once
is remembered as a keyed hash, whose key this process alone has: devices that all come back at once are not
kept waiting, and memory holds no password.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from hashlib import blake2b, pbkdf2_hmac
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from hbroker.errors import ConfigError, ConfigErrors

__all__ = ["Passwords", "hash_password", "parse", "with_user", "without_user"]

_PBKDF2: Final = "$7$"
_ARGON2: Final = "$argon2id$"
_MOST_ITERATIONS: Final = 10_000_000
_MOST_REMEMBERED: Final = 100_000

_hasher: Final = PasswordHasher()


def hash_password(password: str) -> str:
    """A new hash of a password, with a salt of its own."""
    return _hasher.hash(password)


class Passwords:
    """The users of one file. `secret`: a key of this process, for what it remembers. Usable from several
    threads: each access to what is remembered is one operation of a dictionary."""

    def __init__(self, hashes: Mapping[str, str], secret: bytes) -> None:
        self._hashes = dict(hashes)
        self._secret = secret
        self._verified: dict[str, bytes] = {}

    def hash_of(self, user: str) -> str | None:
        """What the file has for a user: it tells whether that changed."""
        return self._hashes.get(user)

    def is_remembered(self, user: str, password: bytes) -> bool | None:
        """Whether it is right, where that takes no time to say; None: `verify` tells."""
        if user not in self._hashes:
            return None  # As slow as a wrong password: the time must not tell which names there are.
        known = self._verified.get(user)
        return (
            True if known is not None and hmac.compare_digest(known, self._digest(user, password)) else None
        )

    def verify(self, user: str, password: bytes) -> bool:
        """Whether it is this user's password. Takes tens of milliseconds."""
        hash = self._hashes.get(user)
        if hash is None:
            _matches(_decoy(), password)
            return False
        if not _matches(hash, password):
            return False
        if len(self._verified) >= _MOST_REMEMBERED:
            self._verified.clear()
        self._verified[user] = self._digest(user, password)
        return True

    def _digest(self, user: str, password: bytes) -> bytes:
        key = blake2b(self._secret, digest_size=32).digest()
        text = self._hashes[user].encode() + b"\0" + password
        return blake2b(text, key=key, digest_size=32).digest()


def parse(text: str, file: str) -> dict[str, str]:
    """Hashes by user name. Raises ConfigErrors with all that is wrong with the file."""
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
    """The text of a file with this user's hash, in the place of a former one."""
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


_decoy_hash: str | None = None


def _decoy() -> str:
    global _decoy_hash
    if _decoy_hash is None:
        _decoy_hash = _hasher.hash("")
    return _decoy_hash


def _is_hash(hash: str) -> bool:
    if hash.startswith(_PBKDF2):
        return _pbkdf2_parts(hash) is not None
    if not hash.startswith(_ARGON2):
        return False
    try:
        _hasher.check_needs_rehash(hash)
    except InvalidHashError:
        return False
    return True


def _matches(hash: str, password: bytes) -> bool:
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
    """Iterations, salt and digest of `$7$iterations$salt$digest`."""
    parts = hash.removeprefix(_PBKDF2).split("$")
    if len(parts) != 3 or not (parts[0].isascii() and parts[0].isdigit()) or len(parts[0]) > 8:
        return None
    try:
        salt, digest = b64decode(parts[1], validate=True), b64decode(parts[2], validate=True)
    except (Base64Error, ValueError):
        return None
    iterations = int(parts[0])
    is_sound = 1 <= iterations <= _MOST_ITERATIONS and salt and 16 <= len(digest) <= 64
    return (iterations, salt, digest) if is_sound else None
