"""`make bench`: a first figure for speed, beside mosquitto's in the same run.

Messages of 64 bytes from one publisher to one subscriber (a *pair*), as fast as the closed loop goes, and the
latency at a fixed rate. The broker has CPU 0 and the load CPU 1. See docs/benchmarks.md for what the figures
mean.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from bench.brokers import Broker
from bench.command import flags, measure_all, paced_plans, pair_plans
from bench.networks import Node
from bench.peers import Mosquitto
from bench.rounds import measure_generated

_BROKERS: Final[tuple[Broker, ...]] = (Node(), Mosquitto())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints. Returns the exit code of `measure_all`."""
    asked = flags("bench.first", __doc__.partition("\n")[0]).parse_args(arguments)
    return measure_all(
        asked, _BROKERS, lambda *given: [*pair_plans(*given), *paced_plans(*given)], measure_generated
    )


if __name__ == "__main__":
    sys.exit(main())
