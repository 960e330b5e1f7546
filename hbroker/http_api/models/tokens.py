"""Tokens, and what they allow (docs/security.md, Tokens)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from hbroker.http_api.models.requests import Flag, RequestBody

__all__ = ["Attenuation", "CallerRights", "Given", "NewToken", "Token", "TokenBlock", "TokenContents"]

_Filter = Annotated[str, Field(min_length=1, max_length=4_096)]
_Filters = Annotated[list[_Filter], Field(max_length=64)]


class NewToken(RequestBody):
    """What a token is to allow. A caller can give no more than he has."""

    read: _Filters = Field(
        default_factory=list, description="filters to subscribe with", examples=[["home/#"]]
    )
    write: _Filters = Field(default_factory=list, description="filters of topics to publish to")
    retain: Flag = Field(False, description="may publish retained messages")
    share: Flag = Field(False, description="may subscribe in shared groups")
    client: str | None = Field(None, max_length=1_024, description="the client id of the holder; null: any")
    workspace: str | None = Field(None, max_length=64, description="of which the holder is a client")
    valid_s: int = Field(30 * 86_400, ge=60, le=3_650 * 86_400, description="seconds from now")


class Attenuation(RequestBody):
    """How to narrow a token. If it names rights, the new token has only those of them that the old one
    has."""

    token: str = Field(min_length=1, max_length=8_192)
    read: _Filters = Field(default_factory=list)
    write: _Filters = Field(default_factory=list)
    retain: Flag = False
    share: Flag = False
    client: str | None = Field(None, max_length=1_024)
    valid_s: int | None = Field(None, ge=60, le=3_650 * 86_400)


class Given(RequestBody):
    """A token to look at."""

    token: str = Field(min_length=1, max_length=8_192)


class Token(BaseModel):
    """A token. It is a secret: whoever has it has its rights."""

    token: str
    expires_at: int | None = Field(description="the last second of its validity, since 1970")
    revocation_id: str = Field(description="revokes it, and all that are made of it")


class TokenBlock(BaseModel):
    """One block of a token: what it grants, or how it narrows those before it."""

    read: list[str] | None = Field(description="null: the block names no rights")
    write: list[str] | None
    retain: bool | None
    share: bool | None
    client: str | None
    workspace: str | None
    expires_at: int | None
    revocation_id: str


class TokenContents(BaseModel):
    """What a token says. `is_valid`: an authority of the network has signed it, and it has not expired."""

    blocks: list[TokenBlock]
    is_valid: bool
    error: str | None = Field(description="why it is not valid")


class CallerRights(BaseModel):
    """What the token of a request allows here."""

    has_token: bool = Field(description="false: the network requires none")
    sees_network: bool = Field(description="it may read `$SYS/#`")
    changes_network: bool = Field(description="it may write `$SYS/#`")
    expires_at: int | None = Field(description="the last second of its validity, since 1970; null: none")
