"""Real processes on hosts of their own, on one machine, over a network that is as bad as asked.

Each host is a network namespace whose only way out is a TUN device (`host`). What leaves it is read by one
relay process, which treats it as the simulated network would (`hbroker.sim.network.relay`), and writes it
into the device of the host that it is for (`forwarding`). The kernel's netem is not needed. `lab` makes
all that and starts programs there. Linux alone, and for root alone.
"""

from .forwarding import Record, recorded
from .host import Host, why_impossible
from .lab import Lab

__all__ = ["Host", "Lab", "Record", "recorded", "why_impossible"]
