"""What devices do, in virtual time: pure, seeded, without clocks or sockets.

`arrivals` says when, `values` says what, `absence` whether a device is there, `walking` where people are;
`device` makes of them the events of one client, in order.
"""
