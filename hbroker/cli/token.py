"""`hbroker token`: makes, narrows, inspects and revokes tokens of native clients. It asks no node."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import (
    FILE,
    PATH,
    WHOLE,
    Value,
    authority_of,
    json_flag,
    state_dir_flag,
    with_authority,
)
from hbroker.cli.revocation import expiry, list_revoked, revoke_block, revoke_id, revoked_blocks
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.identity.authority import AuthorityCertificate
    from hbroker.rights.block import Block
    from hbroker.rights.token import Contents
    from hbroker.runtime.launcher.run_directory import RunDirectory

_TEXT: Final = """\
A token says what its holder may do in a network: read and write which topics, under which client
id, until when. The network's authority signs it. It is a secret: whoever has it has these rights.

  create       makes a token. It needs authority.key of the network, as `hbroker keys issue` does
  attenuate    makes a token that allows less, from another one (--token). It needs no key, only
               the certificate of the authority (--authority)
  inspect      shows what a token allows; with --authority also whether it is valid now
  revoke       ends a token, and all that were made of it: revokes the last block of --token, or
               --block N of it, or the block with --id. It needs authority.key, as create does
  revoked      lists the revoked blocks

A token may read with a filter that is in one of its --read filters as a whole, and write to
topics that match a --write filter. # and + at the first level match no topics that begin with $.
A token with --workspace is for a client of that workspace, and so are all that are made of it.

attenuate adds a block of restrictions, and the holder may do what all blocks allow. If it has
--read, --write, --retain or --share, the token keeps only what is named of these; otherwise all.

A token is given as a file, or as - for stdin, because everybody on a host can read command lines.
Without --out, create and attenuate print the token.

examples:
  hbroker token create --read 'home/#' --write 'home/+/set' --retain --out home.token
  hbroker token create --write home/kitchen/oven --client oven --valid 365d --out oven.token
  hbroker token create --workspace acme --read '#' --write '#' --retain --out acme.token
  hbroker token attenuate --token home.token --read 'home/kitchen/#' --valid 12h --out guest.token
  hbroker token inspect --token guest.token --authority home.crt
  ssh device cat oven.token | hbroker token inspect --token - --json
  hbroker token revoke --token guest.token

exit codes: 0 done, 1 the token is not valid or may not be made, 2 wrong flags, or no authority here
"""

_ACTIONS: Final = {
    "create": {"read", "write", "retain", "share", "client", "workspace", "valid", "network", "out"},
    "attenuate": {"read", "write", "retain", "share", "client", "workspace", "valid", "network", "out"},
    "inspect": {"as_json"},
    "revoke": {"block", "id", "expires", "network"},
    "revoked": {"network", "as_json"},
}
"""The flags of each action, without those that have other defaults than none."""
_UNIT_S: Final = {"m": 60, "h": 3_600, "d": 86_400}
_LONGEST_S: Final = 3_650 * 86_400
_DEFAULT_S: Final = 30 * 86_400
_UNKNOWN: Final = "the token has not been verified: add --authority FILE"


def _validity(text: str) -> int:
    """Seconds from a text like `30d`, `12h` or `90m`. Raises ValueError."""
    found = re.fullmatch(r"([1-9][0-9]{0,8})([mhd])", text)
    seconds = int(found[1]) * _UNIT_S[found[2]] if found else 0
    if not 0 < seconds <= _LONGEST_S:
        raise ValueError(f"{text!r} is not a time like 30d, 12h or 90m, of 3650d at most")
    return seconds


@command("token", _TEXT)
@click.argument("action", type=click.Choice(list(_ACTIONS)))
@click.option("--read", multiple=True, metavar="FILTER", help="may subscribe with it (several: repeat)")
@click.option("--write", multiple=True, metavar="FILTER", help="may publish to its topics (several: repeat)")
@click.option("--retain", is_flag=True, help="may publish retained messages where it may write")
@click.option("--share", is_flag=True, help="may subscribe in shared groups where it may read")
@click.option("--client", metavar="ID", help="has this client id (default: any)")
@click.option("--workspace", metavar="NAME", help="of this workspace: filters and client id are those in it")
@click.option(
    "--valid",
    type=Value("duration", _validity),
    metavar="TIME",
    help="until when from now: 30d, 12h, 90m (default: create 30d, attenuate as before)",
)
@click.option("--token", type=FILE, metavar="FILE", envvar="HBROKER_TOKEN", help="the token; - for stdin")
@click.option("--out", type=PATH, metavar="FILE", help="write the token there, readable only for its owner")
@click.option(
    "--authority",
    type=PATH,
    metavar="FILE",
    envvar="HBROKER_AUTHORITY",
    help="attenuate, inspect: the certificate of the authority (default: $HBROKER_AUTHORITY; of "
    "attenuate also that in --state-dir)",
)
@click.option("--block", type=WHOLE, metavar="N", help="revoke: this block, from 1 (default: the last)")
@click.option("--id", metavar="HEX", help="revoke: the block with this revocation id, as inspect shows it")
@click.option(
    "--expires",
    type=Value("time", expiry),
    metavar="TIME",
    help="revoke --id: when its tokens expire, as 2030-01-01T00:00:00Z (default: never)",
)
@click.option("--network", metavar="NAME", help="the network whose authority it is, if there are several")
@json_flag
@state_dir_flag
def token(
    action: str, token: str | None, authority: Path | None, network: str | None, state_dir: Path, **given: Any
) -> int:
    """Returns when the token is made or shown. Raises UsageError, ConfigError, HBrokerError and OSError."""
    from hbroker.rights.token import attenuate, create

    _refuse_other_flags(action, {**given, "network": network})
    now = time.time()
    if action == "revoke":
        return _revoke(token, with_authority(state_dir, network), **given)
    if action == "revoked":
        return list_revoked(with_authority(state_dir, network), given["as_json"])
    if action == "create":
        block = _block(now, **{**given, "valid": given["valid"] or _DEFAULT_S})
        return _deliver(create(authority_of(with_authority(state_dir, network)).key, block), given["out"])
    if token is None:
        raise click.UsageError(f"{action} needs --token, or HBROKER_TOKEN: the file with the token")
    text = _read(token)
    if action == "inspect":
        return _inspect(text, authority, now, given["as_json"])
    if authority is None:
        authority = with_authority(state_dir, network).authority / "authority.crt"
    keys = [each.public_key for each in _authorities(authority)]
    return _deliver(attenuate(text, _block(now, **given), keys, now), given["out"])


def _refuse_other_flags(action: str, given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value and name not in _ACTIONS[action]:
            flag = "--json" if name == "as_json" else f"--{name}"
            raise click.UsageError(f"{action} does not take {flag}")


def _revoke(
    token: str | None,
    directory: RunDirectory,
    *,
    block: int | None,
    id: str | None,
    expires: int | None,
    **_: Any,
) -> int:
    # Not the token that HBROKER_TOKEN names: nobody is to revoke his own because he forgot a flag.
    source = click.get_current_context().get_parameter_source("token")
    is_named = token is not None and source is not ParameterSource.ENVIRONMENT
    if is_named == (id is not None):
        raise click.UsageError("revoke needs either --token or --id")
    if id is not None:
        if block is not None:
            raise click.UsageError("--block goes with --token")
        return revoke_id(directory, id, expires or 0)
    if expires is not None:
        raise click.UsageError("--expires goes with --id: a token says when it expires")
    assert token is not None
    return revoke_block(directory, _read(token), block)


def _block(
    now: float,
    *,
    read: tuple[str, ...],
    write: tuple[str, ...],
    retain: bool,
    share: bool,
    client: str | None,
    workspace: str | None,
    valid: int | None,
    **_: Any,
) -> Block:
    """The block of the flags. Raises LocalError."""
    from hbroker.rights.block import Block
    from hbroker.rights.rights import BlockRights

    rights = BlockRights(read, write, retain, share) if read or write or retain or share else None
    return Block(rights, client, int(now) + valid if valid else None, workspace)


def _read(source: str) -> str:
    """The text of a token in a file, or on stdin. Raises OSError."""
    data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    return data.decode("ascii", errors="replace").strip()


def _authorities(file: Path) -> list[AuthorityCertificate]:
    """The certificates in the file. Raises ConfigError."""
    from hbroker.identity.authority import AuthorityCertificate

    try:
        return AuthorityCertificate.load_file(file)
    except OSError as error:
        remedy = "name the certificate of the network's authority"
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(file), remedy=remedy) from None


def _deliver(text: str, out: Path | None) -> int:
    """Prints the token, or writes it to a file."""
    from hbroker.rights.token import inspect
    from hbroker.storage.disk import replace_file

    if out is None:
        print(text)
        return DONE
    replace_file(out, [f"{text}\n".encode("ascii")])
    print(f"{out}: a token (a secret). Its holder {_sentence(inspect(text))}")
    return DONE


def _inspect(text: str, authority: Path | None, now: float, as_json: bool) -> int:
    """Shows a token. Returns FAILED if it is not valid, as far as that is known. Raises InvalidToken if it
    cannot be read."""
    from hbroker.cli.output import print_json, print_table
    from hbroker.rights.token import inspect

    contents = inspect(text)
    authorities = _authorities(authority) if authority else []
    network, fault = _signer(text, authorities, now)
    revoked = revoked_blocks(authority, authorities, contents) if authority else []
    if revoked:
        network, fault = None, f"not valid: revoked (block {', '.join(map(str, revoked))})"
    code = DONE if network or not authorities else FAILED
    if as_json:
        print_json(_document(contents, network, fault))
        return code
    header = ("BLOCK", "READ", "WRITE", "RETAIN", "SHARE", "CLIENT", "EXPIRES")
    print_table(header, [_row(number, block) for number, block in enumerate(contents.blocks, 1)])
    print(f"\nThe holder {_sentence(contents)}")
    for number, each in enumerate(contents.revocation_ids, 1):
        print(f"revocation id of block {number}: {each.hex()}")
    print(f"valid: signed by the authority of {network}" if network else fault)
    return code


def _signer(text: str, authorities: list[AuthorityCertificate], now: float) -> tuple[str | None, str]:
    """The network whose authority signed the token, if the token is valid; and otherwise why not."""
    from hbroker.rights.token import verify
    from hbroker.rights.verified import InvalidToken

    fault = _UNKNOWN
    for authority in authorities:
        try:
            verify(text, [authority.public_key], now)
        except InvalidToken as error:
            if not fault.startswith("not valid: the token expired"):
                fault = f"not valid: {error}"
        else:
            return authority.network, ""
    return None, fault


def _row(number: int, block: Block) -> tuple[object, ...]:
    rights = block.rights
    if rights is None:
        named: tuple[str, ...] = ("as before",) * 4
    else:
        named = (_listed(rights.read), _listed(rights.write), _yes(rights.retain), _yes(rights.share))
    return (number, *named, block.client or "any", _time(block.expires_at))


def _listed(filters: Iterable[str]) -> str:
    return ", ".join(filters) or "nothing"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _time(expires_at: int | None) -> str:
    from hbroker.rights.block import utc

    return "never" if expires_at is None else utc(expires_at)


def _allowed(contents: Contents) -> dict[str, Any]:
    """What all blocks allow: of the filters that they name, those that each of them covers. The filters are
    those in its workspace."""
    rights, local = contents.rights, contents.workspace.local
    read = {each for b in rights.blocks for each in b.read if rights.may_read(each, False)}
    write = {each for b in rights.blocks for each in b.write if rights.may_write(each, False)}
    return {
        "read": sorted(filter(None, map(local, read))),
        "write": sorted(filter(None, map(local, write))),
        "retain": all(block.retain for block in rights.blocks),
        "share": all(block.share for block in rights.blocks),
    }


def _sentence(contents: Contents) -> str:
    """What the holder may do, as the rest of a sentence."""
    allowed, clients, workspace = _allowed(contents), _clients(contents), contents.workspace.name
    reads = f"may read {_listed(allowed['read'])}"
    if allowed["read"] and allowed["share"]:
        reads += " (also in shared groups)"
    writes = f"write {_listed(allowed['write'])}"
    if allowed["write"] and allowed["retain"]:
        writes += " (also retained messages)"
    client = f" as the client {' and '.join(clients)}" if clients else ""
    until = "for ever" if contents.expires_at is None else f"until {_time(contents.expires_at)}"
    where = f" in the workspace {workspace}" if workspace else ""
    return f"{reads} and {writes}{where}{client}, {until}."


def _clients(contents: Contents) -> list[str]:
    return sorted({block.client for block in contents.blocks if block.client is not None})


def _document(contents: Contents, network: str | None, fault: str) -> dict[str, Any]:
    """The token as JSON. Times are seconds since the Unix epoch."""
    blocks = [
        {
            **{
                name: getattr(block.rights, name) if block.rights else None
                for name in ("read", "write", "retain", "share")
            },
            "client": block.client,
            "workspace": block.workspace,
            "expires_at": block.expires_at,
            "revocation_id": revocation_id.hex(),
        }
        for block, revocation_id in zip(contents.blocks, contents.revocation_ids, strict=True)
    ]
    whole = {
        **_allowed(contents),
        "clients": _clients(contents),
        "workspace": contents.workspace.name or None,
        "expires_at": contents.expires_at,
    }
    is_valid = None if fault == _UNKNOWN else network is not None
    return {"blocks": blocks, **whole, "valid": is_valid, "network": network, "fault": fault or None}
