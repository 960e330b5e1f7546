"""Files that a process must find whole again, whatever ended it: a kill, a full disk, a loss of power.

    disk          the system calls, as an interface: the operating system's, or one of a test that fails
    whole_file    a file that is replaced as a whole
    record_file   a file of records with keys, which are appended; the last one of each key counts
    store         several record files of one process: what is written together is synced together
    checkpoint    how far a process had got, by clocks that do not step

Nothing here has a clock or a thread of its own.
"""
