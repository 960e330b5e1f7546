"""Captured datagrams: the dissectors for scapy and Wireshark, live captures, the filter in the kernel, and
the count of packets between brokers.

`datagrams` builds datagrams with protobuf alone, `tshark` runs tshark.
"""
