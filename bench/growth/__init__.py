"""What things cost against how many there are (docs/benchmarks.md, "Growth").

    __main__   the program: `python -m bench.growth`; runs of `hbroker bench`, and what is below
    filters    the core's table of subscriptions, alone
    width      a wide tree of nodes, in the simulated network

`__main__` imports the others, which do not know each other.
"""
