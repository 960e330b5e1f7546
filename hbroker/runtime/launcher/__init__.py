"""`hbroker up`: starts, watches and stops the processes of a topology.

    launcher        one thread that runs the network: processes, signals, files
    supervisor      decides which process runs when, without processes and clocks
    spawn           forks a process; what it reports to the launcher
    run_directory   the folder of a network: lock, state, logs, and the state files of its nodes
    ports           checks and assigns the ports of nodes and gateways
    network_key     the join key of a network whose topology has none
    identities      the authority of a network, and the identities of its nodes
    operator_token  the token of gateways and commands, in a network that requires tokens

Imports go downward: `launcher` imports `supervisor`, `spawn` and `run_directory`; `network_key` and
`operator_token` import `run_directory`, and `identities` imports both of these. The commands call `ports`,
`network_key` and `identities` before they run the launcher.
"""
