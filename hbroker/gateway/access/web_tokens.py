"""JSON Web Tokens as passwords (RFC 7519): a client is who its token says, until the token expires.

A token is signed with one of the keys of a JSON Web Key Set (RFC 7517), which an identity provider publishes.
It must have the claims `sub`, which is the user name, and `exp`. A claim `client_id` (RFC 8693 §4.3), if it
is there, is the only client id with which the token may be used. A claim `workspace` names the workspace of
the client.

Only the algorithm of a key counts, never that of the token alone (RFC 8725 §3.1). A signature cannot be
guessed, so wrong tokens do not count as guesses of a password.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

import jwt

from hbroker.errors import ConfigError
from hbroker.gateway.access.policy import Admitted, Candidate, Decision, Refusal
from hbroker.gateway.reason_codes import Code
from hbroker.workspace import name_is_valid

__all__ = ["WebTokens", "is_proof", "is_token"]

LEEWAY_S: Final = 30
"""How much the clocks of the gateway and of the issuer may differ, in seconds."""
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi"})
_REQUIRED: Final = ["exp", "sub"]
_PROOF: Final = "token "


def is_token(password: bytes) -> bool:
    """Whether a password has the form of a token: a JSON object and two more parts, in base64url."""
    return password.startswith(b"eyJ") and password.count(b".") == 2


def is_proof(proof: str) -> bool:
    """Whether a client with this proof was admitted by a token."""
    return proof.startswith(_PROOF)


class WebTokens:
    """What a gateway believes of tokens.

    `keys`: the text of the JSON Web Key Set. `file`: where it is from, for errors. `issuer`, `audience`: what
    a token must have as `iss` and `aud`; empty: anything. `unix_s`: the wall clock. Raises ConfigError if the
    set is malformed, has no usable key, or has a private key.
    """

    def __init__(
        self, keys: str, file: str, *, issuer: str = "", audience: str = "", unix_s: Callable[[], float]
    ) -> None:
        self._keys = _read(keys, file)
        self._issuer = issuer
        self._audience = audience
        self._unix_s = unix_s

    def admit(self, candidate: Candidate, token: bytes) -> Decision:
        """Whether the client may connect with this token."""
        try:
            key_id, key = self._key_of(token)
            claims = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self._audience or None,
                issuer=self._issuer or None,
                leeway=LEEWAY_S,
                options={
                    "require": _REQUIRED,
                    "verify_aud": bool(self._audience),
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
            self._require_time(claims)
            return _admitted(claims, candidate, _PROOF + key_id)
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            return Refusal(Code.BAD_USER_NAME_OR_PASSWORD, f"the token is not valid: {error}")

    def still_admits(self, proof: str) -> bool:
        """Whether a client that was admitted with this proof may stay: its key is still in the set."""
        return any(proof == _PROOF + name for name, _ in self._keys)

    def _key_of(self, token: bytes) -> tuple[str, jwt.PyJWK]:
        header = jwt.get_unverified_header(token)
        wanted = header.get("kid")
        found = [(name, key) for name, key in self._keys if wanted is None or key.key_id == wanted]
        if len(found) != 1:
            raise ValueError("it does not say by `kid` which of the known keys it is signed with")
        return found[0]

    def _require_time(self, claims: dict[str, Any]) -> None:
        now = self._unix_s()
        if _number(claims, "exp") + LEEWAY_S <= now:
            raise ValueError("it has expired")
        if "nbf" in claims and _number(claims, "nbf") - LEEWAY_S > now:
            raise ValueError("it is not valid yet")


def _admitted(claims: dict[str, Any], candidate: Candidate, proof: str) -> Decision:
    user, client_id = claims["sub"], claims.get("client_id")
    if not isinstance(user, str) or not user:
        raise ValueError("its `sub` is not a user name")
    if candidate.username is not None and candidate.username != user:
        raise ValueError("the user name is not its `sub`")
    if client_id is not None and client_id != candidate.client_id:
        return Refusal(Code.CLIENT_IDENTIFIER_NOT_VALID, "the client id is not that of the token")
    until_s = int(_number(claims, "exp")) + LEEWAY_S
    return Admitted(user, proof, until_s=until_s, workspace=_workspace(claims))


def _workspace(claims: dict[str, Any]) -> str | None:
    named = claims.get("workspace")
    if named is not None and not (isinstance(named, str) and name_is_valid(named)):
        raise ValueError("its `workspace` is no name of a workspace")
    return named


def _number(claims: dict[str, Any], name: str) -> float:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 53:
        raise ValueError(f"its `{name}` is not a time")
    return value


def _read(text: str, file: str) -> list[tuple[str, jwt.PyJWK]]:
    """The keys that can verify signatures, each with a name: a hash of all that the set says of it."""
    remedy = "take the JSON Web Key Set that the issuer of the tokens publishes"
    try:
        entries = [dict(entry) for entry in json.loads(text)["keys"]]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ConfigError(f"not a JSON Web Key Set: {error}", file=file, remedy=remedy) from None
    if any(_PRIVATE & entry.keys() for entry in entries):
        raise ConfigError("it has a private key", file=file, remedy="leave the members of private keys out")
    keys: list[tuple[str, jwt.PyJWK]] = []
    for entry in entries:
        if entry.get("use", "sig") != "sig":
            continue
        # RFC 7517 §5: a key of an unknown kind is ignored.
        with suppress(jwt.PyJWTError, ValueError, TypeError, LookupError):
            name = sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()[:16]
            keys.append((name, jwt.PyJWK(entry)))
    if not keys:
        raise ConfigError("it has no key that verifies signatures", file=file, remedy=remedy)
    return keys
