"""The tests in Python. Those of the core alone are in `hbroker/native/src`, beside what they test.

    protocol, transcripts    decisions, among scripted nodes and in virtual time
    network, defects         whole networks in the simulator, and their checkers, which must find defects
    runtime, storage, cli    the shell: processes, files, clients; the commands
    native, gateway_native   the core through its native API
    gateway, conformance     MQTT: decisions, transports, and each statement of MQTT 5
    fuzz, interop            MQTT: malformed packets, and the clients of others
    clients, demo, capture   hpub and hsub, the demo, the dissector
    product, lab             real processes: on one host; on many, as network namespaces (root)
    rooms, telemetry         simulated rooms; the files that nodes write
    analysis, loop           the analysis of these files; from rooms to a plan and its moves
    bench                    the measurements
    frame                    the project itself: layers, style, documents, the wheel
    test_topology*           topology files, with `topologies`: each of these has an error

`waiting`, `background`, `memory` and `needs` are helpers for all. Real networks are started by
`product.network` and `product.node`, simulated ones by `network.networks`.
"""
