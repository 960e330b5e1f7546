"""Measurements of hbroker beside its peers, in one run on one machine (docs/benchmarks.md).

    contest, gateway, connects         programs (`python -m bench.NAME`) that compare with peers
    growth, overload, telemetry        programs that measure hbroker alone
    analysis                           a program: the speed of the load analysis
    pythons/                           a program: the cost of a message in Python, with several clients
    command                            flags and the run that several programs share
    standings, report, goals, chart    results as pages, tables, goals and SVG
    kernel, zenoh, narrow              contestants with programs or a path of their own
    series, rounds, plan, apart        interleaved rounds; one round; a load; the distance of two CPUs
    networks, peers, brokers           hbroker and other brokers, as they are started
    storm, filters, width, secure      loads of `connects` and `growth`; certificates for TLS

Imports go downwards, from the programs. `hbroker.bench` has the processes and clocks that they use.
"""
