"""Simulated rooms of devices, each a real client: `hbroker sim` (docs/simulation.md).

    play        runs a plan: connects the clients, and lets their events happen when they are due
    player      one client: connects, publishes, answers commands, disconnects
    links, mqtt/   the connection of a client: a pool client, or MQTT to a gateway
    ledger, latency, stamp   counts messages by their numbers; a histogram of times; the head of a payload
    plan        the clients of a scenario, their topics and filters
    scaling     a scenario of another size
    model/      what devices do: events in virtual time from one seed, without clock and socket
    scenario/                   a scenario's file as frozen settings, or its errors with their lines
    accounts, report, display   the result of a run; its tables; its progress
    effort, files               how busy the process was; its limit of open files

`accounts` and `display` import `play`; `play` imports `player`, `links`, `ledger` and `plan`; `plan` imports
`model` and `scenario`. `model` imports the settings of `scenario`, and `scenario` imports none of the others.
"""
