"""Commands that start, show and change a network.

    up, down, status        start and stop a network of this host; its processes
    node                    runs one node in this process
    tree, resolve           the nodes of a running network; the owner of a topic
    move, apply, leave      handovers of subtrees, by operator's order
    detach                  `up --detach`: a launcher in the background
    launcher_events         prints the events of a launcher
    running                 finds the running network of this host

`up` imports `detach` and `launcher_events`; `down` and `status` import `running`. No command imports another.
"""
