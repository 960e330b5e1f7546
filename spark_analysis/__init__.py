"""The load of every node, from the telemetry that nodes and gateways write (docs/analysis.md).

    batch, follow                       the two jobs: all files at once, or files as they appear
    measures/                           pure functions from DataFrame to DataFrame, which both jobs share
    plans/                              from measured loads to a plan of moves
    report/                             the page
    data/                               which files are read, and their rows
    tables                              the tables that the batch writes
    session, failures, small, errors    Spark itself; also progress and flags
    synthesize, city                    telemetry of any size, for tests and measurements

Imports go from `batch` and `follow` to `plans`, to `measures`, to `tables`, to `data`. The pure functions
read and write no files. Nothing here imports hbroker: the files are the interface (`data.schema`).
"""
