"""Commands of a host with a node of its own: `hbroker join`, `hbroker doctor`."""
