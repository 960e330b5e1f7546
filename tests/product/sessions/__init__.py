"""Sessions and their messages, at real nodes.

    test_sessions, test_many_sessions         as users have them; too many of them
    test_slow_subscribers, test_under_load    subscribers that are slower than their publishers, or stall
    test_large_messages, test_publish_many    messages of many MiB; many in one call
    test_receipts                             what a publisher is told

`test_under_load` has a long form, and prints figures.
"""
