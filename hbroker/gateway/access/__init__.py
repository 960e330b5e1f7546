"""Which clients may connect, and what each may read and write (MQTT 5 §5.4).

    file_policy       the policy that reads files
    web_tokens        JSON Web Tokens as passwords
    password_file     user names and hashes of passwords
    scram             SCRAM-SHA-256 by AUTH, and its verifiers
    acl_file          access rules in mosquitto's syntax
    access_lists      the access lists that the native core has, one for all clients with equal rules
    password_checks   checks of passwords that wait for a thread, and the bounds on wrong passwords
    policy            the interface of a policy

Imports go downwards: from `file_policy` to the four below it, from `password_file` to `scram`, and from all
but `acl_file` to `policy`.
"""
