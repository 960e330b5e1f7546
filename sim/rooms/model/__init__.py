"""What devices do, in virtual time: pure, seeded, without clocks or sockets.

    device     the events of one client, in order: when it is online, where a person is
    arrivals   when a device publishes
    values     what it publishes

`device` imports the two others. All import the settings of `hbroker.sim.rooms.scenario`.
"""
