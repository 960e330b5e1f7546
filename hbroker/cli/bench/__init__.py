"""The command `hbroker bench`.

    bench    the command: chooses the measurement for the layout
    flags    which layout takes which flags, and their defaults
    output   the tables for a person

`bench` imports `flags` and `output`. The measurements are in `hbroker.bench`, which `bench` imports when it
runs.
"""
