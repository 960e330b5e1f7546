"""Simulated rooms of devices, each a real client: `hbroker sim` (docs/simulation.md).

    play, player                runs a plan; one client of it: connects, publishes, answers, disconnects
    links, mqtt/                the connection of a client: a pool client, or MQTT to a gateway
    delivery_counters, latency  counts of messages by number; a histogram of times
    stamp                       the head of a payload
    plan, scaling               the clients of a scenario, with topics and filters; another size of it
    model/                      what devices do: events in virtual time from one seed, without clock or socket
    scenario/                   a scenario's file as frozen settings, or its errors with their lines
    summary, report, display    the result of a run; its tables; its progress
    effort, files               how busy the process was; its limit of open files

`summary` and `display` import `play`; `play` imports `player`, `links`, `delivery_counters` and `plan`;
`plan` imports `model` and `scenario`. `model` imports the settings of `scenario`, and `scenario` imports none
of the others.
"""
