"""Which files of telemetry are read: each once (`test_intake`), the readable ones (`test_reading`), and those
of one run (`test_runs`)."""
