"""Real processes on hosts of their own, on one machine, over a network with the faults that a test sets.

Each host is a network namespace whose only way out is a TUN device. One relay process reads what leaves a
host, treats it as the simulated network would, and writes it to the device of the destination's host. The
kernel's netem is not needed. Linux only, and root only.

    network      the hosts, the relay's process, and the programs on the hosts
    host         one host: a network namespace and its TUN device
    forwarding   reads and writes the TUN devices, with the clock and the orders of the lab
    __main__     the relay's process

`network` imports `host` and `forwarding`; `__main__` imports `forwarding`. `forwarding` runs the `Relay` of
`hbroker.sim.network.relay`.
"""

from .forwarding import Record, recorded
from .host import Host, why_impossible
from .network import Lab

__all__ = ["Host", "Lab", "Record", "recorded", "why_impossible"]
