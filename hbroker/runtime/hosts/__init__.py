"""What a host needs to run a node that `hbroker up` does not start (docs/hosts.md).

    join_token      all that one node needs, in one file: `hbroker keys issue` writes it
    node_folder     the folder of such a node: its file, its keys and its state
    checks/         what `hbroker doctor` finds out about the host
    service_manager what the process tells systemd, and what systemd has kept for it

`node_folder` imports `join_token`. Nothing else here imports another.
"""
