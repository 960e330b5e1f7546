"""What a node owns: the subtrees that it was granted, less the cuts in them (§5).

    jurisdiction   the grants and cuts of this node; every change goes to the native core, too
    ended_leases   subtrees that this node served until its lease ended (§5.6)
    cut_tree       the cuts as a tree of topic levels, and a cache of which cuts a filter touches (§6.1)

`ended_leases` imports `jurisdiction`, which imports `cut_tree`. This package imports no other package of
`protocol`; `hierarchy`, `wills`, `handover`, `subscriptions` and `resolution` import it.
"""
