"""The product with one safeguard removed at a time, to prove that the invariants of the simulated network
detect it.

`python -m tests.defects` runs each defective product over the seeds of the soak until an invariant is
violated. It must be the invariant that the safeguard protects.
"""
