"""Commands that work on telemetry: analyze, and what it shares."""
