"""hbroker and its peers, as the contest starts them.

    brokers          any broker: its process, address and CPUs
    networks         hbroker: a node, a network, a gateway
    peers            mosquitto, nats-server
    kernel, narrow   the relay in C that is the kernel's limit; the loopback at an MTU of 1,500
    zenoh            Zenoh, with a program of its own for the load

`networks`, `peers` and `zenoh` import `brokers`.
"""
