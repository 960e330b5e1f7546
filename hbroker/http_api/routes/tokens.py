"""Tokens: make, narrow, look at."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Final

from litestar import Controller, get, post
from litestar.datastructures import State

from hbroker.http_api.context import context_of
from hbroker.http_api.middleware.authentication import ApiRequest, may_change
from hbroker.http_api.models.tokens import (
    Attenuation,
    CallerRights,
    Given,
    NewToken,
    Token,
    TokenBlock,
    TokenContents,
)
from hbroker.http_api.problems import refusals
from hbroker.http_api.signing import as_token, public_keys, sign_token
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
        block = Block(
            BlockRights(tuple(data.read), tuple(data.write), data.retain, data.share),
            data.client,
            int(time.time()) + data.valid_s,
            data.workspace,
        )
        return sign_token(context_of(state).access.authority, block, request.user)

    @post("/attenuate", status_code=HTTPStatus.OK, responses=_REFUSALS)
    async def attenuate_token(self, state: State, data: Attenuation) -> Token:
        """Makes a token that allows less, from another one. No key is needed for it."""
        rights = BlockRights(tuple(data.read), tuple(data.write), data.retain, data.share)
        now = time.time()
        expires_at = None if data.valid_s is None else int(now) + data.valid_s
        block = Block(None if rights == BlockRights() else rights, data.client, expires_at)
        keys = public_keys(context_of(state).access.authority)
        return as_token(tokens.attenuate(data.token, block, keys, now))

    @post("/inspect", status_code=HTTPStatus.OK, responses=_REFUSALS)
    async def inspect_token(self, state: State, data: Given) -> TokenContents:
        """What a token says, and whether it is valid. It does not say whether it is revoked."""
        contents, error = tokens.inspect(data.token), None
        try:
            tokens.verify(data.token, public_keys(context_of(state).access.authority), time.time())
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
