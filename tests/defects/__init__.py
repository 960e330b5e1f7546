"""Safeguards taken out, one at a time, to prove that the simulated network's watchers miss them.

`python -m tests.defects` runs each defective product over the soak's seeds until one of them breaks an
invariant, which has to be the one that the safeguard is there for.
"""
