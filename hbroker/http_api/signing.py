"""Tokens that the API has the network's authority sign, for callers."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from hbroker.http_api.middleware.authentication import Caller
from hbroker.http_api.models.tokens import Token
from hbroker.http_api.problems import Refusal
from hbroker.identity.authority import Authority, AuthorityCertificate
from hbroker.rights import token as tokens
from hbroker.rights.block import Block

__all__ = ["as_token", "public_keys", "sign_token"]


def sign_token(certificate: Path | None, block: Block, caller: Caller) -> Token:
    """A token with this block, signed by the authority whose certificate is in this file and whose key is
    beside it. `certificate`: None: security is off. Raises Refusal if the key is not there, or if the token
    would allow more than the caller may."""
    try:
        authority = Authority.load(_required(certificate).parent)
    except FileNotFoundError:
        remedy = "`hbroker token create` on its host makes tokens"
        text = f"the key of the authority is not on the host of the API: {remedy}"
        raise Refusal(HTTPStatus.CONFLICT, text) from None
    made = tokens.create(authority.key, block)
    _require_no_more(tokens.inspect(made), caller)
    return as_token(made)


def as_token(text: str) -> Token:
    """A token as a response has it."""
    contents = tokens.inspect(text)
    return Token(token=text, expires_at=contents.expires_at, revocation_id=contents.revocation_ids[-1].hex())


def public_keys(certificate: Path | None) -> list[Ed25519PublicKey]:
    """The keys that verify tokens. Raises Refusal if security is off."""
    return [each.public_key for each in AuthorityCertificate.load_file(_required(certificate))]


def _required(certificate: Path | None) -> Path:
    if certificate is None:
        raise Refusal(HTTPStatus.CONFLICT, "the network has no authority, because its security is off")
    return certificate


def _require_no_more(contents: tokens.Contents, caller: Caller) -> None:
    """Raises Refusal if a token allows something that the token of the caller does not."""
    has, wanted = caller.rights, contents.rights
    if has.is_unlimited:
        return
    faults: list[str] = []
    for block in wanted.blocks:
        faults += [f"read {each}" for each in block.read if not has.may_read(each, is_shared=block.share)]
        faults += [f"write {each}" for each in block.write if not has.may_write(each, retain=block.retain)]
    if any(name not in wanted.clients for name in has.clients):
        faults.append("have another client id than the caller")
    if caller.expires_at is not None and (contents.expires_at or caller.expires_at + 1) > caller.expires_at:
        faults.append("be valid for longer than the caller's token")
    if faults:
        more = " and to ".join(faults)
        text = f"the token would allow its holder to {more}: a caller can give only what he has"
        raise Refusal(HTTPStatus.FORBIDDEN, text)
