"""Which clients may connect, and what each may read and write (MQTT 5 §5.4).

    policy            the interface of a policy, and `FilePolicy`, which reads the two files below
    password_file     user names and hashes of passwords
    acl_file          access rules in mosquitto's syntax
    access_lists      the access lists that the native core has, one for all clients with equal rules
    password_checks   checks of passwords that wait for a thread, and the bounds on wrong passwords

Imports go from `access_lists` and `password_checks` to `policy`, and from `policy` to the two files.
"""
