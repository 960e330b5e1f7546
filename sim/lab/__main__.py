"""The relay as a program, for `Lab` alone.

Its arguments: a seed, the descriptor of the connection for orders, and each host as `address=descriptor`.
"""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection

from ..network.relay import Relay
from .forwarding import Forwarder

_AHEAD = -10
"""A network does not wait until those whom it serves have had their share of the processor."""


def main(arguments: list[str]) -> None:
    """Returns when the connection that orders come over has ended."""
    os.nice(_AHEAD)
    seed, orders, *hosts = arguments
    pairs = (host.split("=") for host in hosts)
    tuns = {address: int(descriptor) for address, descriptor in pairs}
    Forwarder(Relay(int(seed)), tuns, Connection(int(orders))).run()


if __name__ == "__main__":
    main(sys.argv[1:])
