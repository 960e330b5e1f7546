"""An MQTT 5 client that thousands can be of in one process.

`packets` is the client's side of the codec, sans-IO; `client` is one connection on asyncio. Why it is our
own, and what libraries cost instead: docs/adr/0021-rooms.md.
"""
