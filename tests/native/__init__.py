"""The core through its native API: datagrams, records and topics as Python and paho-mqtt read them, the
subscription trie, gathered calls, and clients of client pools.

`datagrams` makes datagrams for parsers. `multiplexers` and `pool_memory` have client pools.
"""
