"""SCRAM-SHA-256 by AUTH (RFC 5802, RFC 7677; MQTT 5 §4.12): a client proves that it knows its password, and
the gateway that it knows the client. Neither the password nor anything of the same worth travels.

The exchange has four messages:

    CONNECT   the user name, and a number of the client
    AUTH      a number of the gateway; salt and iterations of the user
    AUTH      the client's proof
    CONNACK   the gateway's proof

The gateway computes no slow hash in it. `scramp` does the work.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import pbkdf2_hmac, sha256
from typing import Any, Final, Self

from hbroker.gateway.access.policy import Admitted, Challenge, Decision, Refusal
from hbroker.gateway.reason_codes import Code

__all__ = ["METHOD", "ScramExchange", "ScramVerifier"]

METHOD: Final = "SCRAM-SHA-256"
ITERATIONS: Final = 4_096
"""As RFC 7677 §4 asks for. The client computes them, which may be a small device."""
_MOST_ITERATIONS: Final = 10_000_000
_PREFIX: Final = f"{METHOD}$"
_SALT: Final = 16
_KEY: Final = 32
_WRONG: Final = Refusal(Code.NOT_AUTHORIZED, "wrong user name or password")


@dataclass(frozen=True, slots=True)
class ScramVerifier:
    """What a gateway has of a password (RFC 5803): from it a password cannot be told, but tried.

    As text: `SCRAM-SHA-256$iterations:salt$stored key:server key`, with salt and keys in base64.
    """

    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of(cls, password: str) -> Self:
        """A new verifier of a password, with its own salt. Raises ValueError if the password cannot be
        prepared (RFC 4013)."""
        from scramp import ScramException, ScramMechanism

        try:
            salt, stored_key, server_key, iterations = ScramMechanism(METHOD).make_auth_info(
                password, iteration_count=ITERATIONS
            )
        except ScramException as error:
            raise ValueError(str(error)) from None
        return cls(iterations, salt, stored_key, server_key)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The inverse of `str`; None: this is no verifier, or not within the bounds."""
        parts = text.removeprefix(_PREFIX).replace(":", "$").split("$")
        if not text.startswith(_PREFIX) or len(parts) != 4:
            return None
        count, *encoded = parts
        is_number = count.isascii() and count.isdigit() and len(count) <= 8
        if not is_number or not 1 <= int(count) <= _MOST_ITERATIONS:
            return None
        try:
            salt, stored_key, server_key = (b64decode(part, validate=True) for part in encoded)
        except ValueError:
            return None
        is_sound = salt and len(stored_key) == len(server_key) == _KEY
        return cls(int(count), salt, stored_key, server_key) if is_sound else None

    def __str__(self) -> str:
        salt, stored_key, server_key = (
            b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"{_PREFIX}{self.iterations}:{salt}${stored_key}:{server_key}"

    def verify(self, password: bytes) -> bool:
        """Whether this is the password. Takes the time of the iterations."""
        try:
            made = self._made(password.decode(), self.salt, self.iterations)
        except ValueError:
            return False
        return hmac.compare_digest(made.stored_key, self.stored_key)

    @classmethod
    def _made(cls, password: str, salt: bytes, iterations: int) -> Self:
        """Raises ValueError if the password cannot be prepared (RFC 4013)."""
        from scramp.utils import saslprep

        salted = pbkdf2_hmac("sha256", saslprep(password).encode(), salt, iterations)
        client_key, server_key = (
            hmac.digest(salted, label, "sha256") for label in (b"Client Key", b"Server Key")
        )
        return cls(iterations, salt, sha256(client_key).digest(), server_key)


class ScramExchange:
    """One exchange. `verifier_of`: the verifier of a user, and what is in the file; None: there is none.
    `secret`: from which the salts of unknown users are made."""

    def __init__(self, verifier_of: Callable[[str], tuple[ScramVerifier, str] | None], secret: bytes) -> None:
        from scramp import ScramMechanism

        self._verifier_of, self._secret = verifier_of, secret
        self._user = ""
        self._proof = ""
        self._server: Any = ScramMechanism(METHOD).make_server(self._find)

    def begin(self, data: bytes) -> Challenge | Decision:
        """Handles the client's first message."""
        try:
            self._server.set_client_first(data.decode())
            return Challenge(self._server.get_server_first().encode(), self)
        except Exception:  # The errors of the library have no other class in common.
            return _WRONG

    def end(self, data: bytes) -> Decision:
        """Handles the client's second message."""
        try:
            self._server.set_client_final(data.decode())
            answer = self._server.get_server_final().encode()
        except Exception:  # As above. An unknown user is found out here, as a wrong password is.
            return _WRONG
        return Admitted(self._user, self._proof, data=answer) if self._proof else _WRONG

    def _find(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        """Salt, stored key, server key, iterations. An unknown user has some, too, always the same: they do
        not tell which names exist."""
        self._user = user
        found = self._verifier_of(user)
        if found is None:
            salt, stored_key, server_key = (
                hmac.digest(self._secret, label + user.encode(), "sha256") for label in (b"0", b"1", b"2")
            )
            return salt[:_SALT], stored_key, server_key, ITERATIONS
        verifier, self._proof = found
        return verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations
