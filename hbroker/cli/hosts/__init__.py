"""Commands for hosts with nodes of their own: `hbroker join`, `hbroker doctor`, `hbroker log`."""
