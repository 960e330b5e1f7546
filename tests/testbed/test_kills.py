"""`kill -9` in mid-stream, over a bad network (DESIGN: docs/guarantees.md).

What was acknowledged had reached everyone connected, what was not comes again, and QoS 2 doubles nothing even
so. The journals say it: each client writes down what it saw before it goes on.
"""
