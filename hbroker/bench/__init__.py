"""Measures a broker: `hbroker bench`.

The load runs in the native core, one thread for all clients (`native/src/bench.rs`), which also checks what
comes. Here a load is laid out (`layouts`), its broker started where there is none (`brokers`), its clients
connected (`generator`, with `controls` for those of hbroker's own protocol), and what broker, load and
machine did in the meantime is read from /proc (`process`) and put together (`measurement`). What is no load
has a module of its own: idle sessions (`sessions`), look-ups (`resolve`), nodes that join (`joining`).
"""
