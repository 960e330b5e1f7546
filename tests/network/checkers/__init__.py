"""The checkers of the simulator, in plans that were made for each.

    test_invariants    each invariant holds, and is violated by a defect (`tests.defects`)
    test_deliveries, test_losses, test_paces    what each checker accepts, and what it reports
    test_exemptions    the cases in which less than every message is expected

`test_invariants` draws its plans as the soak does.
"""
