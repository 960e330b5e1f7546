"""The files of telemetry: which of them are read, and their rows.

    selection, runs    which files belong to the time and the runs that are analysed
    reading            their rows, without those of damaged files
    intake             files as they appear, for `follow`
    storage            files at any address that Spark knows
    schema             the columns of the telemetry

Imports go downwards.
"""
