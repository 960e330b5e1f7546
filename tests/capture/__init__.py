"""Captured datagrams: the dissector for scapy, live captures, the filter in the kernel, and the count of
packets between brokers. `datagrams` builds datagrams with protobuf alone."""
