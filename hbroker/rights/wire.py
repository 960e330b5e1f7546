"""A token as protobuf (`schema.proto` of Biscuit 3): what its blocks say.

    Biscuit         authority = 2, blocks = 3 (repeated), proof = 4
    SignedBlock     block = 1, nextKey = 2, signature = 3
    Block           symbols = 1 (repeated), version = 3, facts = 4 (repeated), checks = 6 (repeated)

Tokens of hbroker have these fields and no others. All others are refused: they would change what a block
means (rules, scopes, public keys, signatures of third parties), or are not needed (contexts, ids of keys).

The bytes are read here, and not the Datalog that Biscuit prints. Biscuit prints a text with a quote or a line
break as it is, so one statement can look like several; it does not print scopes; and it prints a symbol that
a later block defines, so who appends a block could change what those before it say. Here a block refers to
its own symbols and to those of the blocks before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from hbroker.rights.block import MOST_FILTERS, Block
from hbroker.rights.rights import BlockRights

__all__ = ["MOST_BLOCKS", "MOST_BYTES", "SignedBlock", "read_blocks"]

MOST_BYTES: Final = 4_096
"""The largest token."""
MOST_BLOCKS: Final = 16
"""Blocks of one token."""
_MOST_STATEMENTS: Final = MOST_FILTERS + 5
"""The filters of a block, and each of the other five statements once."""
_FACTS: Final = ("read", "write", "client", "workspace", "retain", "share")
_DEFAULT_SYMBOLS: Final = (
    *("read", "write", "resource", "operation", "right", "time", "role", "owner", "tenant", "namespace"),
    *("user", "team", "service", "admin", "email", "group", "member", "ip_address", "client", "client_ip"),
    *("domain", "path", "version", "cluster", "node", "hostname", "nonce", "query"),
)
"""The symbols that Biscuit defines, from 0 on."""
_FIRST_SYMBOL: Final = 1_024
"""The number of the first symbol that a token defines."""
_ED25519: Final = b"\x08\x00\x12\x20"
"""How a PublicKey begins: algorithm = 0, and a key of 32 bytes. Anybody can change a signature of the other
algorithm, ECDSA, into another one that is valid, and with it the revocation id of the block."""


class SignedBlock(NamedTuple):
    """A block, and its signature, which is its revocation id."""

    block: Block
    signature: bytes


class _Message(NamedTuple):
    """The fields of a message by their numbers: those that occur once, and those that may occur often; and
    what it means if there is one of some others."""

    single: frozenset[int]
    repeated: frozenset[int]
    refused: Mapping[int, str]


_BISCUIT: Final = _Message(frozenset({2, 4}), frozenset({3}), {1: "it names the key that signed it"})
_SIGNED_BLOCK: Final = _Message(
    frozenset({1, 2, 3}),
    frozenset(),
    {4: "a third party has signed one of its blocks", 5: "one of its signatures has another version"},
)
_BLOCK: Final = _Message(
    frozenset({3}),
    frozenset({1, 4, 6}),
    {
        2: "one of its blocks has a context",
        5: "one of its blocks has a rule",
        7: "one of its blocks trusts somebody else",
        8: "one of its blocks names a public key",
    },
)


def read_blocks(token: bytes) -> list[SignedBlock]:
    """The blocks of a token. Verifies no signature. Raises ValueError and LocalError if the token is
    malformed or too large, or has something that no token of hbroker has."""
    if len(token) > MOST_BYTES:
        raise ValueError(f"it has {len(token)} bytes, over {MOST_BYTES}")
    found = _read(token, _BISCUIT)
    if len(found[3]) >= MOST_BLOCKS:
        raise ValueError(f"it has {len(found[3]) + 1} blocks, over {MOST_BLOCKS}")
    symbols: list[str] = []
    return [_signed_block(_bytes(each), symbols) for each in (*found[2], *found[3])]


def _signed_block(data: bytes, symbols: list[str]) -> SignedBlock:
    """Reads one block. Adds its symbols to those of the blocks before it."""
    block, next_key, signature = (_bytes(*values) for values in _read(data, _SIGNED_BLOCK).values())
    if not next_key.startswith(_ED25519):
        raise ValueError("one of its keys is not an Ed25519 key")
    return SignedBlock(_block(_read(block, _BLOCK), symbols), signature)


def _block(fields: Mapping[int, list[int | bytes]], symbols: list[str]) -> Block:
    symbols += [_bytes(each).decode("utf-8") for each in fields[1]]
    if len(fields[4]) + len(fields[6]) > _MOST_STATEMENTS:
        raise ValueError(f"one of its blocks has over {_MOST_STATEMENTS} statements")
    facts: dict[str, list[str]] = {name: [] for name in _FACTS}
    for each in fields[4]:
        name, text = _fact(_bytes(each), symbols)
        facts[name].append(text)
    retain, share, clients, times = facts["retain"], facts["share"], facts["client"], fields[6]
    workspaces = facts["workspace"]
    if any(len(each) > 1 for each in (retain, share, clients, workspaces, times)):
        raise ValueError("one of its blocks has a statement twice")
    names_rights = bool(facts["read"] or facts["write"] or retain or share)
    rights = BlockRights(tuple(facts["read"]), tuple(facts["write"]), bool(retain), bool(share))
    return Block(
        rights if names_rights else None,
        clients[0] if clients else None,
        _time(_bytes(times[0])) if times else None,
        workspaces[0] if workspaces else None,
    )


def _fact(data: bytes, symbols: list[str]) -> tuple[str, str]:
    """The name of a fact and its text; an empty text for `true`. Fact: predicate = 1. Predicate: name = 1,
    terms = 2. Term: string = 3, bool = 6."""
    match list(_fields(data)):
        case [(1, bytes(predicate))]:
            match list(_fields(predicate)):
                case [(1, int(name)), (2, bytes(term))]:
                    match _symbol(name, symbols), list(_fields(term)):
                        case ("read" | "write" | "client" | "workspace") as known, [(3, int(text))]:
                            return known, _symbol(text, symbols)
                        case ("retain" | "share") as known, [(6, 1)]:
                            return known, ""
    raise ValueError("one of its blocks has a fact that no token of hbroker has")


def _time(data: bytes) -> int:
    """The time T of `check if time($time), $time <= T`. A check consists of messages within messages. Of its
    bytes only the time varies, and the lengths of the messages that it is in."""
    size = len(data) - 33
    if 1 <= size <= 9:
        head = (
            b"\x0a%c\x0a\x02\x08\x1b\x12\x06\x08\x05\x12\x02\x08\x05"  # query() <- time($time),
            b"\x1a%c\x0a\x04\x0a\x02\x08\x05\x0a%c\x0a%c\x20"  # $time, a date,
        ) % (size + 31, size + 17, size + 3, size + 1)
        time, end = _varint(data, len(head))
        if data.startswith(head) and data[end:] == b"\x0a\x04\x1a\x02\x08\x02":  # <=
            return time
    raise ValueError("one of its blocks has a check that no token of hbroker has")


def _symbol(number: int, symbols: list[str]) -> str:
    """The text of a symbol. Raises ValueError if it is not defined."""
    if number < len(_DEFAULT_SYMBOLS):
        return _DEFAULT_SYMBOLS[number]
    if _FIRST_SYMBOL <= number < _FIRST_SYMBOL + len(symbols):
        return symbols[number - _FIRST_SYMBOL]
    raise ValueError("one of its blocks has a symbol that is not defined")


def _read(data: bytes, message: _Message) -> Mapping[int, list[int | bytes]]:
    """The values of the fields of a message by their numbers. Raises ValueError."""
    found: dict[int, list[int | bytes]] = {number: [] for number in sorted(message.single | message.repeated)}
    for number, value in _fields(data):
        if number not in found:
            raise ValueError(message.refused.get(number, f"it has the unknown field {number}"))
        found[number].append(value)
    if any(len(found[number]) != 1 for number in message.single):
        raise ValueError("a field is missing, or is there twice")
    return found


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a field is a number that ought to be a message")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in order: the number and the value of each. Raises ValueError."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        value, position = _varint(data, position)
        if tag & 7 == 0:
            yield tag >> 3, value
        elif tag & 7 == 2 and position + value <= len(data):
            yield tag >> 3, data[position : position + value]
            position += value
        else:
            raise ValueError("it is cut off, or no protobuf of Biscuit")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of at most nine bytes, and the position after it. Raises ValueError."""
    if position < len(data) and data[position] < 0x80:  # As most are.
        return data[position], position + 1
    number = 0
    for index, byte in enumerate(data[position : position + 9]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, position + index + 1
    raise ValueError("it is cut off, or no protobuf of Biscuit")
