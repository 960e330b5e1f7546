"""Looking at the network's datagrams from outside: a scapy layer for the protocol, and a capture of an
interface.

Needs scapy (the extra `capture`). `dissector` shows one datagram, `frames` brings them from an interface or
a file, `packet_counts` counts who sent what to whom, `command` is `hbroker capture`.
"""
