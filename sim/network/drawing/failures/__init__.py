"""What fails.

    faults    paths, all the time; hosts, at times
    clocks    wall clocks
    disks     disks, and nodes that die just after a promise
    waiting   an owner, for longer than its lease, while messages wait for a session

`disks` and `waiting` import `successions` of `nodes`.
"""
