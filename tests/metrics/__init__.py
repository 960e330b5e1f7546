"""The metrics that one process serves of itself."""
