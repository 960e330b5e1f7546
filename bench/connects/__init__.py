"""How fast MQTT clients connect, and what an idle one costs (docs/benchmarks.md, "Connecting").

    __main__   the program: `python -m bench.connects`; the servers that are compared
    storm      the load: many clients that connect and stay

`__main__` imports `storm`. A test uses the load alone.
"""
