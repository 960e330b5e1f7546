"""The nodes, and how subtrees pass from one node to another.

    hierarchy     the nodes and their subtrees
    moves         orders of operators: nodes that leave, and subtrees that move
    returns       a subtree that moves back and forth while its nodes restart
    successions   nodes that die for good, and whose subtrees other nodes claim

`returns` imports `successions`.
"""
