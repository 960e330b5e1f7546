"""A histogram of times with eight buckets for each doubling. So a quantile is never below the true value, and
at most an eighth above it. Adding a time takes the same work whatever the histogram holds, and histograms can
be merged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Self

__all__ = ["Histogram"]

_BITS: Final = 3
_STEPS: Final = 1 << _BITS


class Histogram:
    """A histogram of whole microseconds. Negative times count as 0."""

    __slots__ = ("_buckets", "count", "most")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.most = 0

    def add(self, micros: int) -> None:
        """Adds a time in microseconds."""
        if micros < _STEPS:
            bucket = max(micros, 0)
        else:
            shift = micros.bit_length() - 1 - _BITS
            bucket = (shift << _BITS) + (micros >> shift)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        if micros > self.most:
            self.most = micros

    def merge(self, others: Iterable[Histogram]) -> Self:
        """Adds all times of other histograms."""
        for other in others:
            for bucket, count in other._buckets.items():
                self._buckets[bucket] = self._buckets.get(bucket, 0) + count
            self.count += other.count
            self.most = max(self.most, other.most)
        return self

    def quantile(self, share: float) -> float | None:
        """The quantile in milliseconds: the time that this share did not exceed. None: the histogram is
        empty."""
        left = share * self.count
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return min(_upper(bucket), self.most) / 1000
        return None

    def to_json(self) -> dict[str, float | int | None]:
        """Count and quantiles, in milliseconds."""
        return {
            "count": self.count,
            "p50_ms": self.quantile(0.5),
            "p90_ms": self.quantile(0.9),
            "p99_ms": self.quantile(0.99),
            "max_ms": self.most / 1000 if self.count else None,
        }


def _upper(bucket: int) -> int:
    """The largest time of a bucket, in microseconds."""
    if bucket < 2 * _STEPS:
        return bucket
    shift = (bucket >> _BITS) - 1
    return ((bucket & (_STEPS - 1)) + _STEPS + 1 << shift) - 1
