"""Spans of messages, at an OpenTelemetry collector."""
