"""Floods, forgeries and replays."""
