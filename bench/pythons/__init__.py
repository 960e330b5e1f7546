"""The cost of a message in Python: hbroker's client beside those of other brokers (docs/benchmarks.md).

    __main__    the program: `python -m bench.pythons`
    rounds      one round: a broker, a publishing process and a subscribing one
    libraries   the clients that are compared
    board       numbers of messages, in memory that the processes share
    router      Zenoh's router, in Python

`__main__` imports `rounds`, `libraries` and `board`; `rounds` imports `libraries` and `board`; `libraries`
imports `board` and `router`. The rounds run as the `series` of `bench`.
"""
