"""Statistical tests: a sample is compared with the distribution that it should have.

The seeds are fixed, so a test passes always or never. `ALPHA` is the probability that a correct generator
fails with a given seed: for each call, chosen once, and not by looking at the result of a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

ALPHA = 0.001
_Z_ALPHA = 3.0902
"""The quantile of the standard normal distribution at 1 - ALPHA."""
_Z_TWO_SIDED = 3.2905
"""The quantile at 1 - ALPHA / 2."""


def assert_follows(sample: Sequence[float], cdf: Callable[[float], float]) -> None:
    """The Kolmogorov-Smirnov test: the largest difference between the sample's distribution and the
    expected one, against its asymptotic quantile (within 2% for more than 35 samples)."""
    assert len(sample) > 35
    ordered = sorted(sample)
    n = len(ordered)
    gap = max(max((i + 1) / n - cdf(x), cdf(x) - i / n) for i, x in enumerate(ordered))
    critical = math.sqrt(-0.5 * math.log(ALPHA / 2) / n)
    assert gap < critical, f"gap {gap:.4f}, {critical:.4f} is the most; {n} samples"


def assert_counts(counts: Sequence[int], expected: Sequence[float]) -> None:
    """Pearson's chi-square test, against its quantile by Wilson and Hilferty's approximation."""
    assert min(expected) >= 5, "the approximation asks for it"
    assert math.isclose(sum(counts), sum(expected), rel_tol=1e-9)
    statistic = sum((c - e) ** 2 / e for c, e in zip(counts, expected, strict=True))
    freedom = len(counts) - 1
    spread = 2 / (9 * freedom)
    critical = freedom * (1 - spread + _Z_ALPHA * math.sqrt(spread)) ** 3
    assert statistic < critical, f"chi-square {statistic:.1f}, {critical:.1f} is the most"


def assert_mean(sample: Sequence[float], mean: float, deviation: float) -> None:
    """The mean of independent samples with this mean and standard deviation, by the central limit theorem."""
    found = sum(sample) / len(sample)
    allowed = _Z_TWO_SIDED * deviation / math.sqrt(len(sample))
    assert abs(found - mean) < allowed, f"mean {found:.4f}, not {mean:.4f} within {allowed:.4f}"


def uniform(low: float, high: float) -> Callable[[float], float]:
    return lambda x: min(max((x - low) / (high - low), 0.0), 1.0)


def exponential(mean: float) -> Callable[[float], float]:
    return lambda x: 1 - math.exp(-x / mean) if x > 0 else 0.0


def normal(mean: float, deviation: float) -> Callable[[float], float]:
    return lambda x: 0.5 * (1 + math.erf((x - mean) / (deviation * math.sqrt(2))))
