"""The command `hbroker analyze`.

    analyze   the command: one analysis of all telemetry
    follow    `--follow`: the analysis of telemetry as it is written
    alerts    publishes alerts to the network
    times     times on the command line
    spark     flags, addresses and errors of Spark

`analyze` imports `follow`, `times` and `spark`; `follow` imports `alerts` and `spark`. The analysis itself is
`hbroker.spark_analysis`, which `analyze` and `follow` import when they run.
"""
