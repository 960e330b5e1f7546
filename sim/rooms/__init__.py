"""Simulated rooms of devices, each a real client: `hbroker sim` (docs/simulation.md).

Three things are kept apart. `scenario` is what a file says: frozen settings, or errors with their lines.
`model` is what devices do: events in virtual time from one seed, without a clock or a socket; `plan` makes of
a scenario the clients that there are. `play` is the shell: it connects them, has their events happen when
they are due, and counts (`counters`) what was published, acknowledged and received.
"""
