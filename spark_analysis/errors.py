"""Errors outside Spark, with texts for the user who started the analysis."""


class AnalysisError(Exception):
    """The analysis failed. The text has the reason and the remedy."""


class NotInstalled(AnalysisError):
    """Java, or a Python package that the analysis needs, is not installed."""
