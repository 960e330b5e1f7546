"""From rows to the loads of subtrees (`test_delegation`), and from loads to a plan (`test_planning`)."""
