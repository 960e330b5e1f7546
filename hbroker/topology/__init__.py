"""A topology: the nodes of a network, as a YAML file lists them (docs/topology.md).

Nothing needs to be listed in advance, since nodes join by themselves (docs/protocol.md §5.1); a file is a
convenience for those that start together. It is read in three steps, each in a module of its own, and each
goes on after an error, so that one run tells all that is wrong:

    document    text -> YAML nodes that know their line
    sections    YAML nodes -> typed entries, one by one
    rules       what holds between entries: one root, no name or subtree twice

Beyond this package a topology is valid and frozen.
"""

from hbroker.topology.model import Topology
from hbroker.topology.parse import load, parse
from hbroker.topology.plan import Plan
from hbroker.topology.render import render

__all__ = ["Plan", "Topology", "load", "parse", "render"]
