"""`hbroker analyze --follow`: in one process (`test_follow`), as a process that is killed and started again
(`test_following`), and its alerts (`test_alerts`). `test_following` uses the comparisons of `test_follow`."""
