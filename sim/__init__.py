"""Simulations of hbroker.

    network/   a whole network of nodes and clients in one process, in virtual time
    rooms/     `hbroker sim`: simulated devices as real clients of a running network
    lab/       real processes on hosts of their own, over a network with faults
    soak       runs `network` over many seeds

`soak` imports `network`, and `lab` imports the faults of `network` (`paths`, `relay`). `rooms` imports
neither. `network` imports `hbroker.protocol` and the native engine; `rooms` uses the clients of
`hbroker.runtime`.
"""
