"""Operators' orders to a node: leave, claim a subtree, hand one back, log at another level (§5.7).

    requests    at the node: checks, carries out and answers orders
    client      at the operator: sends one order, and repeats it until it is done

`requests` imports `order_credential` from `client`, and claims and nonces from `hierarchy`. `client` imports
only the proof of the join key from there.
"""
