"""The load of every node, from the telemetry that nodes and gateways write (docs/analysis.md).

Files in, tables and one page out. Between them are pure functions from DataFrame to DataFrame (`loads`,
`hierarchy`, `losses`, `latency`, `cost`, `forecast`, `accounts`), which batch and stream share; what reads
and writes is in `reading`, `tables` and `batch` alone. Nothing here imports hbroker: the files are the border
(`schema`).
"""
