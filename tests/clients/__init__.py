"""hpub and hsub: flags, formats and completion; how they end, and how fast they start.

`test_mosquitto_compatibility` and `test_persistent_sessions` run the same steps with mosquitto's programs, as
`programs` starts them.
"""
