"""Traces of a process, if it has them: the extra `traces` is imported only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.runtime.span_sender import SpanSender, SpanSource

__all__ = ["span_sender"]


def span_sender(
    source: SpanSource, kind: str, name: str, endpoint: str, unix_offset_us: int
) -> SpanSender | None:
    """What sends the spans of a process; the arguments are those of `SpanSender`. None: there is no endpoint.
    Raises ConfigError if the libraries are not installed."""
    if not endpoint:
        return None
    try:
        from hbroker.runtime.span_sender import SpanSender
    except ModuleNotFoundError as error:
        message = f"traces are wanted, and the extra `traces` is not installed: {error}"
        raise ConfigError(message, file=endpoint, remedy="pip install 'hbroker[traces]'") from None
    return SpanSender(source, kind, name, endpoint, unix_offset_us)
