"""Tokens: make, narrow, look at."""

from __future__ import annotations

import time
from http import HTTPStatus
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from litestar import Controller, get, post
from litestar.datastructures import State

from hbroker.http_api.authentication import ApiRequest, Caller, may_change
from hbroker.http_api.context import context_of
from hbroker.http_api.models.tokens import (
    Attenuation,
    CallerRights,
    Given,
    NewToken,
    Token,
    TokenBlock,
    TokenContents,
)
from hbroker.http_api.problems import Refusal, refusals
from hbroker.identity.authority import Authority, AuthorityCertificate
from hbroker.rights import token as tokens
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights
from hbroker.rights.verified import InvalidToken

__all__ = ["TokenRoutes", "read_caller"]

_REFUSALS: Final = refusals(
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.SERVICE_UNAVAILABLE,
)


class TokenRoutes(Controller):
    """`/tokens`."""

    path = "/tokens"
    tags = ("tokens",)

    @post("/", guards=[may_change], responses=_REFUSALS)
    async def create_token(self, request: ApiRequest, state: State, data: NewToken) -> Token:
        """Makes a token that the authority of the network signs. It needs `authority.key` on the host of the
        API, and gives no more than the caller has, and for no longer."""
        authority, now = _authority(context_of(state).access.authority), time.time()
        block = Block(
            BlockRights(tuple(data.read), tuple(data.write), data.retain, data.share),
            data.client,
            int(now) + data.valid_s,
            data.workspace,
        )
        made = tokens.create(authority.key, block)
        _require_no_more(tokens.inspect(made), request.user)
        return _token(made)

    @post("/attenuate", status_code=HTTPStatus.OK, responses=_REFUSALS)
    async def attenuate_token(self, state: State, data: Attenuation) -> Token:
        """Makes a token that allows less, from another one. No key is needed for it."""
        rights = BlockRights(tuple(data.read), tuple(data.write), data.retain, data.share)
        now = time.time()
        expires_at = None if data.valid_s is None else int(now) + data.valid_s
        block = Block(None if rights == BlockRights() else rights, data.client, expires_at)
        return _token(tokens.attenuate(data.token, block, _keys(context_of(state).access.authority), now))

    @post("/inspect", status_code=HTTPStatus.OK, responses=_REFUSALS)
    async def inspect_token(self, state: State, data: Given) -> TokenContents:
        """What a token says, and whether it is valid. It does not say whether it is revoked."""
        contents, error = tokens.inspect(data.token), None
        try:
            tokens.verify(data.token, _keys(context_of(state).access.authority), time.time())
        except InvalidToken as fault:
            error = str(fault)
        blocks = map(_block, contents.blocks, contents.revocation_ids)
        return TokenContents(blocks=list(blocks), is_valid=error is None, error=error)


@get(
    "/caller",
    responses=refusals(HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED),
    tags=["tokens"],
    operation_id="ReadCaller",
)
async def read_caller(request: ApiRequest) -> CallerRights:
    """What the token of this request allows here: whether its holder sees the network, and may change it."""
    caller = request.user
    return CallerRights(
        has_token=caller.token is not None,
        sees_network=caller.sees_network,
        changes_network=caller.changes_network,
        expires_at=caller.expires_at,
    )


def _authority(certificate: Path | None) -> Authority:
    try:
        return Authority.load(_required(certificate).parent)
    except FileNotFoundError:
        remedy = "`hbroker token create` on its host makes tokens"
        text = f"the key of the authority is not on the host of the API: {remedy}"
        raise Refusal(HTTPStatus.CONFLICT, text) from None


def _keys(certificate: Path | None) -> list[Ed25519PublicKey]:
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


def _token(text: str) -> Token:
    contents = tokens.inspect(text)
    return Token(token=text, expires_at=contents.expires_at, revocation_id=contents.revocation_ids[-1].hex())


def _block(block: Block, revocation_id: bytes) -> TokenBlock:
    rights = block.rights
    return TokenBlock(
        read=None if rights is None else list(rights.read),
        write=None if rights is None else list(rights.write),
        retain=None if rights is None else rights.retain,
        share=None if rights is None else rights.share,
        client=block.client,
        workspace=block.workspace,
        expires_at=block.expires_at,
        revocation_id=revocation_id.hex(),
    )
