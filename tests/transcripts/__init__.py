"""Transcripts: commands to nodes in virtual time, and all that the nodes say then, as text files.

`runner` replays one. `HBROKER_REWRITE=1` writes what it found.
"""
