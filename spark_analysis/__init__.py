"""The load of every node, from the telemetry that nodes and gateways write (docs/analysis.md).

    batch, follow                       the two jobs: all files at once, or files as they appear
    loads, hierarchy, latency, losses   pure functions from DataFrame to DataFrame, which both jobs share;
                                        also cost, forecast, accounts
    delegation, planning, pace          from measured loads to a plan of moves
    alerts                              states of alerts, from closed windows
    report/                             the page
    selection, runs, reading, intake    which files are read, and their rows
    tables, storage, schema             tables, files at any address, the columns of the telemetry
    session, failures, small, errors    Spark itself; also progress and flags
    synthesize, city                    telemetry of any size, for tests and measurements

Imports go from `batch` and `follow` to the rest; `schema`, `storage`, `loads` and `planning` are at the
bottom. The pure functions read and write no files. Nothing here imports hbroker: the files are the interface
(`schema`).
"""
