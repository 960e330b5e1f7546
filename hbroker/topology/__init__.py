"""A topology: the nodes, gateways and bridges of a network, as a YAML file lists them (docs/topology.md).

A network needs no such file, because nodes join by themselves (docs/protocol.md §5.1). The file is a
convenience for processes that start together. Reading goes on after an error, so one run reports all errors.

    parse       the text of a file -> a valid `Topology`, or all errors; it calls the readers below
    flags       the settings of one node or gateway from command-line flags, under the same rules
    node_file   the settings of one node from a file of its own, whose keys are those flags
    rules       what must hold between entries: one root, no name or subtree twice
    gateways    reads `gateways`, and what `auth` says about MQTT clients
    bridges     reads `bridges`
    admin       reads `admin`
    sections    reads `nodes`, `auth`, `limits` and `telemetry`; `plan` reads the section of this name
    document    the text of a file -> YAML nodes that know their line, and the report of errors
    model       the valid, frozen `Topology`; `render` writes it as the text of a file
    moves       which subtrees running nodes must give away or claim to match a `Topology`

Imports go downward: `node_file` imports `flags`. `parse` and `flags` import `rules`, which imports
`gateways`, which imports `sections`, and all readers import `document`. `model` imports `plan`. Outside, only
`config`, `errors`, `hostnames` and `subtree` of hbroker are imported.
"""

from hbroker.topology.model import Topology
from hbroker.topology.parse import load, parse
from hbroker.topology.plan import Plan
from hbroker.topology.render import render

__all__ = ["Plan", "Topology", "load", "parse", "render"]
