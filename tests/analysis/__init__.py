"""The load analysis on Spark (docs/analysis.md).

    data/            which files are read, and their rows
    following/       `--follow`: the same tables in steps, and alerts
    plans/           from loads to a plan of moves
    test_tables      every table, against `plain`, which computes it a second time
    test_conservation  a real network: what devices, nodes and the analysis count agrees
    test_pace, test_plans, test_synthesize    the pace; what Spark makes of a transform; synthetic cities
    test_report      the page, in a browser
    test_command, test_session, test_cluster  the command, and where Spark runs

`files` writes telemetry files, and `networks` makes the rows of small networks. The tests in folders use
`files`, `plain`, `networks`, and the comparisons of `test_tables`.
"""
