"""Measures a broker: `hbroker bench` (the command itself is `hbroker.cli.bench`).

    joining, resolve   nodes that join a root; look-ups at each depth of a chain
    sessions           idle sessions
    measurement        a load on a broker, between two snapshots
    generator          the connected clients of a load
    controls           the controls of clients of hbroker's own protocol
    brokers            running brokers, and those that are started
    plan               the load to run
    layouts            which publishers publish to which subscribers
    chain              the topology of a chain of nodes
    resource_totals    what was spent between two moments
    launching          starts and ends processes, on CPUs of their own
    process            CPU time and memory, from /proc

The load runs in the native core (`native/src/bench/mod.rs`), in one thread for all clients, and checks every
message. Each module imports only modules below it in this list.
"""
