"""What `hbroker doctor` finds out about a host and its nodes. Nothing is changed.

    finding     one line of the result: what is right or wrong, and the command that mends it
    system      the host: versions, buffers, segmentation, the clock, open files
    network     ports, the way to the root, and whether the root answers
    secrets     certificates and keys: modes, validity, and whether they belong together
    disk        free space, and how long a sync takes

All import `finding`, and none of the others.
"""
