"""`hbroker bench`, and the programs of `bench`, in short runs.

    test_command, test_layouts, test_resource_totals    `hbroker bench`: loads, layouts, CPU time
    test_contest, test_zenoh, test_pythons    comparisons with other brokers and clients
    test_growth, test_overload, test_storm    costs by size, an overloaded owner, many clients that connect

`runs` starts them, and `brokers` is a broker that treats each message as a test says.
"""
