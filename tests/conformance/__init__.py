"""The normative statements of MQTT 5, tested at a gateway in a network (docs/mqtt-conformance.md).

    statements       all of them by id, and why some need no test
    holds            how a test names those that it tests
    test_connect, test_publish, ...   one file for each chapter or packet
    test_table       the page agrees with the tests

`client` is an MQTT client with every field, and `policy` what the gateway allows.
"""
