"""Files that stay readable after a kill, a full disk or a loss of power (docs/protocol.md §5.10).

    disk            the system calls; `replace_file` replaces a file atomically
    record_format   the bytes of a file of records: header, record, CRC, torn tail, damage
    record_file     appends records with keys to a file; the last record of each key counts
    checkpoint      when the process was last alive, and how many bytes of each file were synced
    store           several record files of one process, written and synced together

Each module imports only modules that are listed above it, and nothing else of hbroker. Nothing here reads a
clock or starts a thread; `store` gets its clock as an argument.
"""
