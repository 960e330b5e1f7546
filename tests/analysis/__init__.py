"""The analysis of telemetry."""
