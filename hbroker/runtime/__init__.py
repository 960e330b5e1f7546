"""The shell around the sans-IO decisions: event loops, sockets, clocks, files, processes and signals.

    client          the asynchronous client, client pools, and an operator's orders to nodes
    gateway         a gateway's process, its files, and its threads for password checks
    launcher        `hbroker up`: starts, watches and stops the processes of a topology
    node            a node's process, and the files of what its next run must know
    hosts           joining from another host, checks of a host, and the service manager
    telemetry       writes the load of a process to Parquet files
    driver          runs a control over a native endpoint, on asyncio
    control_loop    one event-loop iteration of such a control, without asyncio; the clock
    credentials     what the native core seals datagrams with, and the tokens of clients, from files
    key_log         opens sealed datagrams with the secrets that processes have logged
    process_usage   CPU time and memory of this process
    address         the address of a network, as users write it
    contexts        named settings of how to reach a network, in files of the user
    logs            one event per line, as text or JSON

Each line imports only lines below it, with one exception: `hosts` imports `launcher.ports`. `gateway` imports
`launcher.ports`, `hosts.service_manager` and `telemetry`, `node` imports `hosts.service_manager` and
`telemetry`, and `client` and `launcher` import no other subpackage. Below are `hbroker.gateway`, `.protocol`,
`.topology`, `.storage` and the native core.
"""
