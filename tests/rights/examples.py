"""Keys and tokens of tests, raw tokens of Biscuit as a stranger makes them, and random blocks."""

from __future__ import annotations

import base64
import struct

from biscuit_auth import Biscuit, BiscuitBuilder, BlockBuilder, PrivateKey, PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import strategies as st

from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights
from hbroker.rights.token import create
from tests.topics import FILTERS

NOW = 1_800_000_000
DAY_S = 86_400

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
AUTHORITIES = [KEY.public_key()]
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))

HOME = Block(BlockRights(("home/#",), ("home/+/set",), retain=True, share=True), expires_at=NOW + DAY_S)
TOKEN = create(KEY, HOME)

_FEW_FILTERS = st.lists(FILTERS, max_size=3).map(tuple)
RIGHTS = st.builds(BlockRights, _FEW_FILTERS, _FEW_FILTERS, st.booleans(), st.booleans()).filter(
    lambda rights: rights != BlockRights()
)

TEXTS = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"], exclude_characters='"\\'), min_size=1)


def raw(token: str) -> bytes:
    """The bytes of a token."""
    return base64.urlsafe_b64decode(token)


def biscuit(token: str) -> Biscuit:
    """The token as Biscuit reads it, to append what hbroker would not append."""
    return Biscuit.from_base64(token, PublicKey(f"ed25519/{KEY.public_key().public_bytes_raw().hex()}"))


def appended(block: Block) -> bytes:
    """TOKEN with a block that hbroker would not append, because it asks for more."""
    return bytes(biscuit(TOKEN).append(BlockBuilder(block.to_datalog())).to_bytes())


def made(datalog: str) -> str:
    """A token whose first block is any Datalog, which the authority signed."""
    key = PrivateKey(f"ed25519-private/{KEY.private_bytes_raw().hex()}")
    return BiscuitBuilder(datalog).build(key).to_base64()


def signed(*blocks: bytes, is_sealed: bool = False) -> bytes:
    """A token with any bytes as blocks. The authority signed the first one, and a holder each other one.
    `is_sealed`: it ends with a signature in place of the key that signs the next block."""
    key, token, proof = KEY, b"", b""
    for index, block in enumerate(blocks):
        next_key = Ed25519PrivateKey.generate()
        public = next_key.public_key().public_bytes_raw()
        content = block + struct.pack("<I", 0) + public
        signature = key.sign(content)
        signed_block = message(1, block) + message(2, b"\x08\x00\x12\x20" + public) + message(3, signature)
        token += message(3 if index else 2, signed_block)
        key = next_key
        proof = (
            message(2, key.sign(content + signature)) if is_sealed else message(1, key.private_bytes_raw())
        )
    return token + message(4, proof)


def message(number: int, content: bytes) -> bytes:
    """A field of a protobuf message: its number, and a text, bytes or a message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def fact(name: int, text: int) -> bytes:
    """A fact with one text, as a field of a block. Both are numbers of symbols: 0 is `read`, 1 is `write`.
    Those that blocks define begin at 1,024."""
    return message(4, message(1, b"\x08" + _varint(name) + message(2, b"\x18" + _varint(text))))


def symbols(*texts: bytes) -> bytes:
    """The symbols of a block, and its version."""
    return b"".join(message(1, text) for text in texts) + b"\x18\x03"


def _varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])
