"""Measurements of hbroker beside its peers, in one run on one machine (docs/benchmarks.md).

    contest, durable, connects/        programs (`python -m bench.NAME`) that compare with peers
    overload, telemetry, growth/       programs that measure hbroker alone
    stores, analysis                   programs: large stores; the speed of the load analysis
    pythons/                           a program: the cost of a message in Python, with several clients
    command                            flags and the run that several programs share
    results/                           results as pages, tables, goals and SVG
    contestants/                       hbroker and its peers, as they are started
    series, rounds, plan, apart        interleaved rounds; one round; a load; the distance of two CPUs
    secure                             certificates for TLS

Imports go downwards, from the programs. `hbroker.bench` has the processes and clocks that they use. `limits`
(C) and `zenoh`, `indexes`, `handshakes` (Rust) are programs of their own, and import nothing of this.
"""
