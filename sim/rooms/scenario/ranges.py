"""Names that stand for many: `floor-[1-4]/office-[1-8]` stands for 32 rooms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Final

__all__ = ["MOST", "Expansion", "expand", "substitute"]

MOST: Final = 100_000
"""Names that one pattern may stand for."""
_RANGE: Final = re.compile(r"\[(\d{1,6})-(\d{1,6})\]")
_REFERENCE: Final = re.compile(r"\$([1-9])")

Expansion = tuple[str, tuple[str, ...]]
"""A name, and the number of each of its ranges in it."""


def expand(pattern: str) -> Iterator[Expansion]:
    """Every name that the pattern stands for. Raises ValueError if a range is empty, or if there are too
    many."""
    bounds = [(int(low), int(high)) for low, high in _RANGE.findall(pattern)]
    total = 1
    for low, high in bounds:
        if low > high:
            raise ValueError(f"the range [{low}-{high}] is empty")
        total *= high - low + 1
        if total > MOST:
            raise ValueError(f"it stands for more than {MOST} names")
    parts = _RANGE.split(pattern)[::3]
    for numbers in product(*(range(low, high + 1) for low, high in bounds)):
        texts = tuple(map(str, numbers))
        yield parts[0] + "".join(map("".join, zip(texts, parts[1:], strict=True))), texts


def substitute(text: str, numbers: tuple[str, ...]) -> str:
    """The text with `$1` replaced by the first number, and so on. Raises ValueError if there is no such
    number."""

    def number(found: re.Match[str]) -> str:
        index = int(found[1])
        if index > len(numbers):
            raise ValueError(f"{found[0]} refers to a range that the name does not have")
        return numbers[index - 1]

    return _REFERENCE.sub(number, text)
