"""What goes wrong before or beside Spark, in words for who started the analysis."""


class AnalysisError(Exception):
    """It could not be done; the text says why, and what to do about it."""


class NotInstalled(AnalysisError):
    """Java, or a Python package that the analysis needs, is not there."""
