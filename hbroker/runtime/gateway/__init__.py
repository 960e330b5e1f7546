"""A gateway's process: the native core, the control over it, and everything that blocks (docs/gateway.md).

    process          runs the gateway until a signal or a failure ends it
    native_gateway   the native core behind the interface that the decisions use
    policies         makes the policy: from files, or from a class of the operator's own; what the threads for
                     password checks share
    files            reads the files of users, rules and certificates

Imports go downward: `process` imports `policies` and `native_gateway`; `policies` imports `files`, which
imports `native_gateway`. All import `hbroker.gateway` for its decisions.
"""
