"""The files of a node's state, on a disk with faults."""
