"""The shell around the sans-IO decisions: event loops, sockets, clocks, files, processes and signals.

    client          the asynchronous client, client pools, and an operator's orders to nodes
    node            a node's process, and the files of what its next run must know
    gateway         a gateway's process, its files, and its threads for password checks
    launcher        `hbroker up`: starts, watches and stops the processes of a topology
    telemetry       writes the load of a process to Parquet files
    driver          runs a control over a native endpoint, on asyncio
    control_loop    one event-loop iteration of such a control, without asyncio; the clock
    address         the address of a network, as users write it
    logs            one event per line, as text or JSON

Imports go downward from the processes to the loops: all subpackages but `launcher` and `telemetry` import
`control_loop`. `gateway` imports `launcher.ports` and `node.usage`; `launcher` imports `node.state_files`;
`node` and `gateway` import `telemetry`, of which one module imports `node.usage`. `client` imports none of
the other subpackages. Below are `hbroker.gateway`, `.protocol`, `.topology`, `.storage` and the native core.
"""
