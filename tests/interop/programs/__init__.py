"""One small program for each client library, all with the protocol of `tests.interop.lines`.

They run as processes because the libraries use loops and threads in different ways, and some print a lot.
"""
