"""A small MQTT 5 client: thousands of them run in one process.

    client    one connection on asyncio
    packets   a client's side of the codec, sans-IO

`client` imports `packets`. docs/adr/0021-rooms.md says why hbroker has its own, and what libraries cost.
"""
