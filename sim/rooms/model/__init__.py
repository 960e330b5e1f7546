"""What devices do, in virtual time: pure, seeded, without clocks or sockets.

    device     the events of one client, in order
    arrivals   when a device publishes
    values     what it publishes
    absence    when it is online
    walking    where a person is

`device` imports the four others. All but `walking` import the settings of `hbroker.sim.rooms.scenario`.
"""
