"""Subtrees of a running network move: by order or because a node leaves (`test_moving`), to what a topology
says (`test_applying`), with long queues (`test_queue_moves`), and while nodes are killed
(`test_kills_while_moving`). `test_detaching` is about `hbroker up --detach`."""
