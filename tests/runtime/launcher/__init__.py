"""`hbroker up` and its processes: decisions in virtual time (`test_launcher_supervision`), real processes,
the state for other commands, a disk that refuses writes, a new start, the join key.

`launched` starts a launcher whose nodes are stand-ins (`stand_in`).
"""
