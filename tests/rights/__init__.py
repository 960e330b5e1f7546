"""Rights of clients, and the tokens that carry them.

What rights allow (`test_rights`); a block as Datalog (`test_block`); tokens that are made, narrowed and
verified (`test_token`); tokens that somebody has changed, or made with Biscuit itself (`test_forged`).
"""
