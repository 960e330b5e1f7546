"""The outcome of the verification of a token."""

from __future__ import annotations

from dataclasses import dataclass

from hbroker.errors import HBrokerError
from hbroker.rights.rights import Rights

__all__ = ["InvalidToken", "VerifiedToken"]


class InvalidToken(HBrokerError):
    """The token is malformed, has expired, was not signed by an authority that is believed, or has something
    that tokens of hbroker do not have. The text says which."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """What a token says that an authority has signed, and that was valid at the time of the verification. The
    fields are those of `token.Contents`."""

    rights: Rights
    expires_at: int | None
    revocation_ids: tuple[bytes, ...]
