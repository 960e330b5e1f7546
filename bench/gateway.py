"""`make bench`, its second half: the gateway beside other brokers of MQTT, one load for all.

MQTT 3.1.1 over TCP, messages of 64 bytes: pairs, and one topic with many subscribers, in a closed loop, and
the latency at a fixed rate. For hbroker, owner and gateway are counted together. docs/benchmarks.md says what
the figures mean.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from bench.command import flags, list_of, measure_all, paced_plans, pair_plans
from bench.contestants.brokers import Broker
from bench.contestants.networks import Gateway
from bench.contestants.peers import Mosquitto, Nats
from bench.plan import Plan
from bench.rounds import measure_generated

_FAN_WINDOW: Final = 64
"""Messages in flight to many subscribers: each message is that number of copies."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints. Returns the exit code of `measure_all`."""
    parser = flags("bench.gateway", __doc__.partition("\n")[0])
    parser.set_defaults(pairs=[8])
    parser.add_argument(
        "--subscribers",
        type=list_of(range(2, 5_001)),
        default=[1_000],
        help="of one topic, from 2 on (default 1000)",
    )
    parser.add_argument("--tls", action="store_true", help="over TLS, without nats-server")
    asked = parser.parse_args(arguments)
    return measure_all(asked, _brokers(tls=asked.tls), _plans, measure_generated)


def _brokers(*, tls: bool) -> tuple[Broker, ...]:
    both = (Gateway(tls=tls), Mosquitto(tls=tls))
    return both if tls else (*both, Nats())


def _plans(asked: argparse.Namespace, load_cpus: frozenset[int]) -> list[Plan]:
    fans = [
        Plan(1, qos, _FAN_WINDOW, None, load_cpus, subscribers)
        for subscribers in asked.subscribers
        for qos in asked.qos
    ]
    return [*pair_plans(asked, load_cpus), *fans, *paced_plans(asked, load_cpus)]


if __name__ == "__main__":
    sys.exit(main())
