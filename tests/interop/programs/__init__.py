"""One small program for each client library; all speak the lines of `tests.interop.lines`.

In processes of their own: the libraries differ in loops and threads, and some are noisy.
"""
