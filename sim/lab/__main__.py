"""The relay as a program, which only `Lab` starts.

Its arguments: the descriptor of the connection for orders, and each host as `address=descriptor`.
"""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection

from ..network.relay import Relay
from .forwarding import Forwarder

_AHEAD = -10
"""Niceness: a real network does not wait for the processor behind the hosts that it serves."""


def main(arguments: list[str]) -> None:
    """Returns when the connection for orders has ended."""
    os.nice(_AHEAD)
    orders, *hosts = arguments
    pairs = (host.split("=") for host in hosts)
    tuns = {address: int(descriptor) for address, descriptor in pairs}
    Forwarder(Relay(seed=0), tuns, Connection(int(orders))).run()


if __name__ == "__main__":
    main(sys.argv[1:])
