"""What is computed from the rows: pure functions from DataFrame to DataFrame.

    loads                  the load of a topic, a subtree, a node
    hierarchy              loads of subtrees, each with all that lies in it
    cost, pace             what a message costs a node; how fast each node goes
    latency, losses        how long messages take; what was dropped
    forecast               when a node reaches its capacity
    accounts               the counters of a node beside the sums of its topics
    alerts                 states of alerts, from closed windows

Most of them import `loads`; `losses` and `pace` import `tables` of the package above.
"""
