"""The shell around the decisions.

    client/      the API over a fake endpoint, and client pools over real sockets
    launcher/    `hbroker up` and its processes
    test_node, test_state_files, test_writer_threads    a node's process and its files
    test_address, test_clock, test_hashing, test_logs   addresses, the clock, password checks, log lines

`conftest` has a fake endpoint for the client that a test makes.
"""
