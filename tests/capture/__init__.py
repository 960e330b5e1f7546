"""Tests of the capture and its dissector."""
