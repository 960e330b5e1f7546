"""Tokens that somebody has changed, or made with Biscuit itself: InvalidToken is raised, and nothing else."""

from __future__ import annotations

import base64
import random
from contextlib import suppress

import pytest
from biscuit_auth import BlockBuilder, KeyPair

from hbroker.errors import LocalError
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights, Rights
from hbroker.rights.token import attenuate, create, inspect, verify
from hbroker.rights.verified import InvalidToken
from tests.rights.examples import (
    AUTHORITIES,
    KEY,
    NOW,
    TOKEN,
    biscuit,
    fact,
    made,
    message,
    raw,
    signed,
    symbols,
)

NARROWED = attenuate(TOKEN, Block(BlockRights(("home/kitchen/#",)), "oven"), AUTHORITIES, NOW)
OTHER = create(KEY, Block(BlockRights(("attic/#",), ("attic/#",))))
TIME = "check if time($time), $time <= 2030-01-01T00:00:00Z"

STRANGE = [
    'write("#") <- read("home/#")',
    "write($x) <- read($x)",
    "read($x) <- client($x) trusting previous",
    "check if true",
    "check all time($time), $time <= 2030-01-01T00:00:00Z",
    "reject if time($time), $time <= 2030-01-01T00:00:00Z",
    f"{TIME} or true",
    f"{TIME} trusting previous",
    "check if time($t), $t <= 2030-01-01T00:00:00Z",
    "check if time($time), $time < 2030-01-01T00:00:00Z",
    'check if "a".matches("(a+)+$")',
    "retain(false)",
    'read("a", "b")',
    'read(["a", "b"])',
    "read(hex:61)",
    "read(null)",
    'read("a#")',
    'read("")',
    'client("")',
    'client("a"); client("b")',
    f"{TIME}; {TIME}",
    'right("a")',
    "; ".join(f'read("{n}")' for n in range(65)),
    "; ".join(f"f({n})" for n in range(250)),
    f"f([{', '.join(map(str, range(600)))}])",
]


@pytest.mark.parametrize("datalog", STRANGE)
def test_a_block_with_a_statement_of_another_kind_is_refused(datalog: str) -> None:
    appended = biscuit(TOKEN).append(BlockBuilder(datalog)).to_base64()
    for token in (appended, made(f'read("home");{datalog}')):
        with pytest.raises(InvalidToken, match="not a token of hbroker"):
            verify(token, AUTHORITIES, NOW)
        with pytest.raises(InvalidToken, match="not a token of hbroker"):
            inspect(token)


@pytest.mark.parametrize(
    "text",
    ['x");\nwrite("#', "x\n", "\n", 'x"', "x\\", '"', "x\x00", "x\x7f", "x\u2028y", 'x");write("#'],
)
def test_a_text_cannot_pretend_to_be_a_statement(text: str) -> None:
    for name in ("read", "client"):
        token = biscuit(TOKEN).append(BlockBuilder(f"{name}({{text}})", {"text": text})).to_bytes()
        with pytest.raises(InvalidToken, match="not a token of hbroker"):
            verify(bytes(token), AUTHORITIES, NOW)


def test_a_name_cannot_pretend_to_be_a_statement() -> None:
    for name in (b'read("a");\nwrite', b'read("a");write', b"read ", b""):
        with pytest.raises(InvalidToken, match="has a fact"):
            verify(signed(symbols(name, b"#") + fact(1_024, 1_025)), AUTHORITIES, NOW)


def test_a_block_cannot_change_what_one_before_it_says() -> None:
    """Biscuit prints a symbol of any block in any block: here `#` where nothing was defined before."""
    later = symbols(b"#") + fact(0, 1_025)
    for token in (
        signed(BLOCK, symbols() + fact(0, 1_025)),
        signed(BLOCK, symbols() + fact(0, 1_025), later),
    ):
        with pytest.raises(InvalidToken, match="symbol that is not defined"):
            verify(token, AUTHORITIES, NOW)
    again = signed(BLOCK, symbols(b"a") + fact(0, 1_025))
    with pytest.raises(InvalidToken, match="was changed"):
        verify(again, AUTHORITIES, NOW)


def test_the_first_block_names_rights() -> None:
    for datalog in ('client("oven")', TIME, ""):
        with pytest.raises(InvalidToken, match="names no rights"):
            verify(made(datalog), AUTHORITIES, NOW)


def test_a_block_that_a_third_party_signed_is_refused() -> None:
    parent, third = biscuit(TOKEN), KeyPair()
    block = parent.third_party_request().create_block(third.private_key, BlockBuilder('read("home/a")'))
    token = parent.append_third_party(third.public_key, block).to_base64()
    with pytest.raises(InvalidToken, match="a third party"):
        verify(token, AUTHORITIES, NOW)
    with pytest.raises(InvalidToken, match="a third party"):
        inspect(token)


def test_raw_blocks_are_read_as_those_of_biscuit() -> None:
    """The blocks of the tests below are what they seem to be, but for what each test changes."""
    found = verify(signed(BLOCK, symbols(b"b") + fact(0, 1_025)), AUTHORITIES, NOW)
    assert found.rights == Rights((BlockRights(("a",)), BlockRights(("b",))))


BLOCK = symbols(b"a") + fact(0, 1_024)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (signed(BLOCK, symbols() + message(2, b"context")), "context"),
        (signed(BLOCK, symbols() + message(5, b"")), "rule"),
        (signed(BLOCK, symbols() + message(7, b"\x08\x01")), "trusts somebody else"),
        (signed(BLOCK, symbols() + message(8, b"")), "public key"),
        (signed(BLOCK, symbols() + message(9, b"")), "unknown field 9"),
        (signed(BLOCK, symbols() + b"\x18\x03"), "twice"),
        (signed(BLOCK, b""), "missing"),
        (signed(BLOCK, symbols() + fact(0, 5_000)), "not defined"),
        (signed(BLOCK, symbols() + fact(5_000, 1_024)), "not defined"),
        (signed(BLOCK, symbols() + fact(0, 28)), "not defined"),
        (signed(BLOCK, symbols() + message(4, b"")), "has a fact"),
        (signed(BLOCK, symbols() + fact(0, 1_024) + b"\x20\x01"), "ought to be a message"),
        (signed(BLOCK, symbols() + message(6, b"x" * 38)), "has a check"),
        (signed(BLOCK, symbols() + message(6, b"")), "has a check"),
        (signed(BLOCK, symbols(b"\xff") + fact(0, 1_025)), "utf-8"),
        (signed(BLOCK, symbols() + fact(0, 1_024) * 70), "over 69 statements"),
        (signed(*[BLOCK] * 17), "17 blocks"),
        (signed(BLOCK) + b"\x08\x01", "names the key"),
        (signed(BLOCK) + signed(BLOCK), "twice"),
        (signed(BLOCK) + b"\x20\x01", "twice"),
        (signed(BLOCK) + b"\x2b", "cut off"),
        (signed(BLOCK) + b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "cut off"),
        (signed(BLOCK).replace(b"\x08\x00\x12\x20", b"\x08\x01\x12\x20"), "not an Ed25519 key"),
    ],
)
def test_a_token_with_other_parts_is_refused(token: bytes, reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason):
        inspect(token)
    with pytest.raises(InvalidToken):
        verify(token, AUTHORITIES, NOW)


def test_nothing_is_appended_to_a_token_that_is_sealed() -> None:
    token = base64.urlsafe_b64encode(signed(BLOCK, is_sealed=True)).decode("ascii")
    assert verify(token, AUTHORITIES, NOW).rights == Rights((BlockRights(("a",)),))
    with pytest.raises(LocalError, match="it is sealed"):
        attenuate(token, Block(client="oven"), AUTHORITIES, NOW)


def changed(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """The bytes with a few bits flipped, with some cut off, or with some of another token."""
    match chance.randrange(4):
        case 0:
            out = bytearray(data)
            for _ in range(chance.randint(1, 3)):
                out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
            return bytes(out)
        case 1:
            return data[: chance.randrange(len(data))]
        case 2:
            at, length = chance.randrange(len(data)), chance.randint(1, 80)
            place = chance.randrange(len(other))
            return data[:at] + other[place : place + length] + data[at + length :]
        case _:
            return data[: chance.randrange(len(data))] + other[chance.randrange(len(other)) :]


def test_a_changed_token_gives_no_right() -> None:
    """InvalidToken only. What is left valid is narrowed no less than the token that it was made from."""
    chance = random.Random(36)
    tokens = [raw(token) for token in (TOKEN, NARROWED, OTHER)]
    genuine = {verify(token, AUTHORITIES, NOW).rights.key for token in tokens}
    refused = 0
    for _ in range(2_000):
        data = changed(chance, chance.choice(tokens), chance.choice(tokens))
        with suppress(InvalidToken):
            inspect(data)
        try:
            found = verify(data, AUTHORITIES, NOW)
        except InvalidToken:
            refused += 1
        else:
            assert found.rights.key in genuine
    assert refused > 1_900


def test_any_bytes_as_a_block_of_a_holder_give_no_right() -> None:
    """A holder signs his block himself, so the signatures are right, whatever its bytes are."""
    chance = random.Random(37)
    own = symbols(b"b") + fact(0, 1_025)
    for _ in range(1_000):
        block = changed(chance, own, raw(OTHER))
        with suppress(InvalidToken):
            found = verify(signed(BLOCK, block), AUTHORITIES, NOW)
            assert BlockRights(("a",)) in found.rights.blocks
            assert not found.rights.may_write("b", retain=False)


def test_random_bytes_are_no_token() -> None:
    chance = random.Random(38)
    for length in range(200):
        with pytest.raises(InvalidToken):
            verify(chance.randbytes(length), AUTHORITIES, NOW)


class PanicException(BaseException):
    """As pyo3 raises it for a panic of Rust: no Exception, and of a class that each library makes."""


class _Panicking:
    """Biscuit's class with a defect."""

    raised: type[BaseException] = PanicException

    @classmethod
    def from_bytes(cls, data: bytes, key: object) -> None:
        raise cls.raised("index out of bounds")


def test_a_token_by_which_biscuit_panics_is_not_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("biscuit_auth.Biscuit", _Panicking)
    with pytest.raises(InvalidToken, match="no authority that is believed has signed the token"):
        verify(TOKEN, AUTHORITIES, NOW)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_process_is_no_invalid_token(
    monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    monkeypatch.setattr("biscuit_auth.Biscuit", _Panicking)
    monkeypatch.setattr(_Panicking, "raised", raised)
    with pytest.raises(raised):
        verify(TOKEN, AUTHORITIES, NOW)
