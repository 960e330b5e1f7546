"""Commands that start, show and change a network.

    up, down, status        start and stop a network of this host; its processes
    node                    runs one node in this process
    tree, resolve           the nodes of a running network; the owner of a topic
    move, apply, leave      handovers of subtrees, by operator's order
    detach                  `up --detach`: a launcher in the background
    launcher_events         prints the events of a launcher
    running                 finds the running network of this host
    hierarchy               reads the statuses of all nodes, and draws the hierarchy
    admin_requests          finds nodes and sends orders to them

`up` imports `detach` and `launcher_events`; `down` and `status` import `running`; `tree` and `apply` import
`hierarchy`; `move`, `apply` and `leave` import `admin_requests`. No command imports another.
"""
