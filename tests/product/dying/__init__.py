"""Owners that die."""
