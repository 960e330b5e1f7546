"""The log of keys opens what was sealed, and nothing else."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from hbroker.runtime.key_log import KeyLog

SECRET = bytes(range(32))
ASSOCIATION = 0x1122_3344_5566_7788
ALGORITHMS: dict[str, tuple[type[AESGCM | ChaCha20Poly1305], int]] = {
    "AES-128-GCM": (AESGCM, 16),
    "ChaCha20-Poly1305": (ChaCha20Poly1305, 32),
}


def derived(secret: bytes, label: str, length: int) -> bytes:
    return HKDFExpand(SHA256(), length, f"hbroker {label}".encode()).derive(secret)


def sealed(number: int, data: bytes, *, epoch: int = 0, algorithm: str = "AES-128-GCM") -> bytes:
    secret = SECRET
    for _ in range(epoch):
        secret = derived(secret, "next", 32)
    cipher, length = ALGORITHMS[algorithm]
    kind = 0x07 | epoch % 4 << 3
    header = bytes([kind]) + ASSOCIATION.to_bytes(8, "big") + (number % 2**32).to_bytes(4, "big")
    nonce = bytes(a ^ b for a, b in zip(derived(secret, "iv", 12), number.to_bytes(12, "big"), strict=True))
    return header + cipher(derived(secret, "key", 32)[:length]).encrypt(nonce, data, header)


def line(algorithm: str = "AES-128-GCM") -> str:
    return f"SEAL {ASSOCIATION:016x} {algorithm} {SECRET.hex()}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "keys.log"
    file.write_text(line())
    return file


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_was_sealed_is_opened_in_any_order_and_over_epochs(file: Path, algorithm: str) -> None:
    file.write_text(line(algorithm))
    log = KeyLog(file)
    numbers = list(range(2**32 - 300, 2**32 + 300))
    for batch in (numbers[at : at + 20] for at in range(0, len(numbers), 20)):
        Random(batch[0]).shuffle(batch)
        for number in batch:
            datagram = sealed(
                number, f"data {number}".encode(), epoch=(number - numbers[0]) // 50, algorithm=algorithm
            )
            opened = log.open(datagram)
            assert opened is not None
            assert opened.data == f"data {number}".encode()


def test_a_log_that_begins_late_finds_the_epoch_by_the_number(file: Path) -> None:
    number = 3 * 2**22 + 7
    opened = KeyLog(file).open(sealed(number, b"late", epoch=3))
    assert opened is not None
    assert opened.data == b"late"


def test_what_was_changed_or_is_not_sealed_is_not_opened(file: Path) -> None:
    log, datagram, chance = KeyLog(file), sealed(1, b"data"), Random(1)
    for at in range(len(datagram)):
        changed = bytearray(datagram)
        changed[at] ^= 1 << chance.randrange(8)
        assert log.open(bytes(changed)) is None
        assert log.open(datagram[:at]) is None
    assert log.open(b"\x0a\x05protobuf is not sealed") is None


def test_an_opened_datagram_can_be_sealed_again_with_other_data(file: Path) -> None:
    log = KeyLog(file)
    opened = log.open(sealed(5, b"data"))
    assert opened is not None
    assert opened.with_data(b"atad") == sealed(5, b"atad")


def test_lines_may_be_appended_and_lines_that_are_none_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "keys.log"
    file.write_text(f"# a comment\nSEAL zz AES-128-GCM {SECRET.hex()}\nSEAL {ASSOCIATION:016x} ROT13 00\n")
    log, datagram = KeyLog(file), sealed(1, b"data")
    for part in (line()[:30], line()[30:]):
        assert log.open(datagram) is None
        with file.open("a") as out:
            out.write(part)
    assert log.open(datagram) is not None
