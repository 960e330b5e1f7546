"""Tokens: the rights of a client, signed by the authority of its network (Biscuit 3; ADR 36).

A token is a chain of blocks (`hbroker.rights.block`). The authority signs the first one, which names rights.
Who has a token can append a block to it without the key of the authority. Such a block can only narrow the
token: its rights are the intersection of those of its blocks, and it expires when the first block expires.

Biscuit makes and verifies the signatures. What the blocks say is read by `hbroker.rights.wire`, and is not
evaluated as Datalog: who appends a block chooses what is in it, and its evaluation could take long.

As text a token is base64 for URLs (RFC 4648 §5), with padding. Each token has one text.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import biscuit_auth
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hbroker.errors import LocalError
from hbroker.rights.block import Block, utc
from hbroker.rights.rights import BlockRights, Rights
from hbroker.rights.verified import InvalidToken, VerifiedToken
from hbroker.rights.wire import MOST_BLOCKS, MOST_BYTES, read_blocks
from hbroker.workspace import Workspace

__all__ = ["Contents", "attenuate", "create", "inspect", "verify"]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a token says. Nothing of it is verified.

    `blocks`: the first one, which names rights, and those that were appended. `revocation_ids`: one for each
    block. A token with the id of a revoked block is not valid any more.
    """

    blocks: tuple[Block, ...]
    revocation_ids: tuple[bytes, ...]

    @property
    def workspace(self) -> Workspace:
        """Of which the holder is a client. The names in all blocks are those of this workspace."""
        return Workspace(self.blocks[0].workspace or "")

    @property
    def rights(self) -> Rights:
        """What all blocks allow, by the names of the network."""
        workspace, named = self.workspace, self.blocks[0].client
        return Rights(
            tuple(_absolute(block.rights, workspace) for block in self.blocks if block.rights is not None),
            tuple(workspace.client_name(block.client) for block in self.blocks if block.client is not None),
            workspace=workspace.name,
            named_client=workspace.client_name(named) if named is not None else "",
        )

    @property
    def expires_at(self) -> int | None:
        """The last second at which the token is valid, since the Unix epoch; None: it does not expire."""
        return min((block.expires_at for block in self.blocks if block.expires_at is not None), default=None)


def create(key: Ed25519PrivateKey, block: Block) -> str:
    """Signs a token with the key of an authority. Raises LocalError if the block names no rights, or a name
    that its workspace cannot have, or if the token would be too large."""
    if block.rights is None:
        raise LocalError("a token without rights is of no use: name a filter that it may read or write")
    _require_names(block, Workspace(block.workspace or ""))
    builder = biscuit_auth.BiscuitBuilder(block.to_datalog())
    return _text(builder.build(biscuit_auth.PrivateKey(f"ed25519-private/{key.private_bytes_raw().hex()}")))


def attenuate(token: str, block: Block, authorities: Sequence[Ed25519PublicKey], now: float) -> str:
    """Appends a block to a token, which narrows it. No private key is needed.

    `authorities`, `now`: as in `verify`. Raises InvalidToken as `verify` does. Raises LocalError if the block
    is empty, if it names rights, a client id, a workspace or a time that the token does not allow, or if the
    token would be too large.
    """
    biscuit, contents = _verified(_bytes(token), authorities, now)
    _require_narrower(block, contents)
    try:
        narrowed = biscuit.append(biscuit_auth.BlockBuilder(block.to_datalog()))
    except biscuit_auth.BiscuitBuildError as error:
        raise LocalError(f"nothing can be appended to the token, because it is sealed: {error}") from None
    return _text(narrowed)


def verify(token: str | bytes, authorities: Sequence[Ed25519PublicKey], now: float) -> VerifiedToken:
    """Reads a token, as text or as bytes. Verifies that an authority signed it, and that it is valid now.

    `authorities`: the public keys of all authorities that are believed: two while the authority of the
    network is replaced. `now`: seconds since the Unix epoch. Does not look whether the token was revoked.

    Raises InvalidToken, and nothing else, whatever the token is.
    """
    _, contents = _verified(_bytes(token), authorities, now)
    return VerifiedToken(contents.rights, contents.expires_at, contents.revocation_ids)


def inspect(token: str | bytes) -> Contents:
    """Reads a token, as text or as bytes. Verifies neither the signatures nor the time: do not rely on it.

    Raises InvalidToken, and nothing else, whatever the token is.
    """
    return _contents(_bytes(token))


def _verified(
    data: bytes, authorities: Sequence[Ed25519PublicKey], now: float
) -> tuple[biscuit_auth.Biscuit, Contents]:
    """The token, as Biscuit and as hbroker reads it. The signatures are first: so a stranger cannot have a
    node read much. Raises InvalidToken."""
    biscuit = next(filter(None, (_signed_by(authority, data) for authority in authorities)), None)
    if biscuit is None:
        raise InvalidToken(
            "no authority that is believed has signed the token: it is of another network, was changed, or "
            "is not complete"
        )
    contents = _contents(data)
    if contents.expires_at is not None and now > contents.expires_at:
        raise InvalidToken(
            f"the token expired at {utc(contents.expires_at)}: get another one, or set the clock"
        )
    return biscuit, contents


def _signed_by(authority: Ed25519PublicKey, data: bytes) -> biscuit_auth.Biscuit | None:
    try:
        key = biscuit_auth.PublicKey(f"ed25519/{authority.public_bytes_raw().hex()}")
        return biscuit_auth.Biscuit.from_bytes(data, key)
    except Exception:  # The errors of the library have no other class in common.
        return None
    except BaseException as error:
        if not _is_panic(error):
            raise
        return None


def _is_panic(error: BaseException) -> bool:
    """Whether the library has met a defect of its own (a panic of Rust). pyo3 makes this class in each
    library, and does not export it; it is no Exception."""
    return type(error).__name__ == "PanicException" and not isinstance(error, Exception)


def _bytes(token: str | bytes) -> bytes:
    """The token as bytes. Raises InvalidToken if it is too large, or if the text is not that of its bytes."""
    size = len(token) if isinstance(token, bytes) else len(token) // 4 * 3 - 2
    if size > MOST_BYTES:
        _refuse(f"it has over {MOST_BYTES} bytes")
    if isinstance(token, bytes):
        return token
    try:
        data = base64.b64decode(token, altchars=b"-_", validate=True)
        if base64.urlsafe_b64encode(data).decode("ascii") == token:
            return data
    except ValueError:
        pass
    _refuse("it is not base64 for URLs")


def _contents(data: bytes) -> Contents:
    """What the token says. Raises InvalidToken."""
    try:
        blocks, signatures = zip(*read_blocks(data), strict=True)
    except (ValueError, LocalError) as error:
        _refuse(error)
    if blocks[0].rights is None:
        _refuse("its first block names no rights, so it allows nothing")
    contents = Contents(blocks, signatures)
    try:
        for block in blocks:
            _require_names(block, contents.workspace)
    except LocalError as error:
        _refuse(error)
    return contents


def _require_narrower(block: Block, contents: Contents) -> None:
    """Raises LocalError if the block asks for more than the token has, or for nothing."""
    if block == Block():
        raise LocalError(
            "nothing is said of how the token is to be narrowed: name filters, a client id or a time"
        )
    if len(contents.blocks) == MOST_BLOCKS:
        raise LocalError(f"the token has {MOST_BLOCKS} blocks already, which are the most")
    workspace = contents.workspace
    _require_names(block, workspace)
    has, named = contents.rights, block.rights or BlockRights()
    wanted = _absolute(named, workspace)
    faults = [
        *(f"read {workspace.local(each)}" for each in wanted.read if not has.may_read(each, is_shared=False)),
        *(f"write {workspace.local(each)}" for each in wanted.write if not has.may_write(each, retain=False)),
        *(["retain messages"] if wanted.retain and not all(each.retain for each in has.blocks) else []),
        *(["join shared groups"] if wanted.share and not all(each.share for each in has.blocks) else []),
        *(
            [f"be the client {block.client}"]
            if block.client and not has.may_be(workspace.client_name(block.client))
            else []
        ),
    ]
    if faults:
        raise LocalError(f"the token does not allow to {' or to '.join(faults)}: it can only be narrowed")
    if block.expires_at and contents.expires_at and block.expires_at > contents.expires_at:
        raise LocalError(f"the token expires at {utc(contents.expires_at)} already: it can only be narrowed")


def _require_names(block: Block, workspace: Workspace) -> None:
    """Raises LocalError if a block of a token of this workspace names another one, or something that cannot
    be in it."""
    if block.workspace is not None and block.workspace != workspace.name:
        other = f"the workspace {workspace.name}" if workspace.name else "no workspace"
        raise LocalError(
            f"the token is of {other}, and a block of it names the workspace {block.workspace}: its first "
            "block decides that, so make another token"
        )
    rights = block.rights or BlockRights()
    for filter in (*rights.read, *rights.write):
        if workspace.absolute(filter) is None:
            raise LocalError(f"{filter[:80]!r} is no filter of a workspace: it begins with $")
    if block.client is not None:
        try:
            workspace.client_name(block.client)
        except ValueError as error:
            raise LocalError(str(error)) from None


def _absolute(rights: BlockRights, workspace: Workspace) -> BlockRights:
    """Rights of a block with the names of the network."""
    read, write = (
        tuple(workspace.prefix + filter for filter in filters) for filters in (rights.read, rights.write)
    )
    return BlockRights(read, write, rights.retain, rights.share)


def _text(biscuit: biscuit_auth.Biscuit) -> str:
    size = len(biscuit.to_bytes())
    if size > MOST_BYTES:
        raise LocalError(f"the token would have {size} bytes, over {MOST_BYTES}: name fewer filters")
    return biscuit.to_base64()


def _refuse(reason: object) -> NoReturn:
    raise InvalidToken(f"not a token of hbroker: {reason}") from None
