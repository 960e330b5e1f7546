"""The load analysis on Spark."""
