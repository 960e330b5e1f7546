"""What devices publish: readings that wander, frames, images.

A reading is an Ornstein-Uhlenbeck process in steps: each step draws it back to its usual value, so that it
wanders plausibly and its variance stays bounded, at step² / (1 - (1 - PULL)²). Random bytes are cut from one
block of noise, which costs a copy and no random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from ..scenario.settings import Frames, Report, Size, Value

__all__ = ["NOISE_BYTES", "PULL", "noise", "payload_source"]

PULL: Final = 0.1
NOISE_BYTES: Final = 1 << 17


def noise(seed: int) -> bytes:
    """The block from which frames are cut."""
    return Random(seed).randbytes(NOISE_BYTES)


def payload_source(random: Random, report: Report, block: bytes) -> Callable[[], bytes]:
    """Makes the payloads of a report, one after the other."""
    if report.value is not None:
        return _readings(random, report.value, report.size)
    if isinstance(report.pattern, Frames):
        return _frames(random, report.pattern.key_every, report.size, block)
    return lambda: _cut(random, random.randint(report.size.least, report.size.most), block)


def _readings(random: Random, value: Value, size: Size) -> Callable[[], bytes]:
    reading = value.usual

    def read() -> bytes:
        nonlocal reading
        reading += PULL * (value.usual - reading) + random.gauss(0.0, value.step)
        return f"{reading:.2f}".encode().ljust(random.randint(size.least, size.most))

    return read


def _frames(random: Random, key_every: int, size: Size, block: bytes) -> Callable[[], bytes]:
    number = random.randrange(key_every)
    middle = (size.least + size.most) // 2

    def shoot() -> bytes:
        nonlocal number
        number += 1
        bounds = (size.least, middle) if number % key_every else (middle, size.most)
        return _cut(random, random.randint(*bounds), block)

    return shoot


def _cut(random: Random, length: int, block: bytes) -> bytes:
    start = random.randrange(len(block) - min(length, len(block)) + 1)
    times = -(-length // len(block))
    return (block * times)[:length] if times > 1 else block[start : start + length]
