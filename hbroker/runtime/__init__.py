"""The shell around the protocol: event loop, sockets, clocks and processes. The one place with side
effects."""
