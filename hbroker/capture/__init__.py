"""Looks at the network's datagrams from outside: a scapy layer for the protocol, and a capture.

    command         what `hbroker capture` does
    dissector       a scapy layer: one datagram and its packets
    associations    which datagrams are of associations, and what is sealed in them
    trains          several datagrams that a capture shows as one
    reading         parses a datagram, and describes its packets
    frames          IP packets from a network interface or a pcap file
    packet_filter   the kernel's filter for a capture, in classic BPF
    packet_counts   counts packets by source, destination and name
    hbroker.lua     a dissector for Wireshark, which scripts/wireshark.py generates

`command` imports `dissector`, `frames` and `packet_counts`; `dissector` imports `associations`, `reading`
and `trains`, which imports `associations`; `frames` imports `packet_filter`. `dissector` and `frames` need
scapy (the extra `capture`).
"""
