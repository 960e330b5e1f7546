"""Errors as responses: problem details (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.openapi.datastructures import ResponseSpec
from pydantic import BaseModel, Field

from hbroker.errors import (
    Backpressure,
    ConfigError,
    ConfigErrors,
    HBrokerError,
    InvalidTopic,
    LocalError,
    NotConnected,
    PayloadTooLarge,
    RemoteError,
    Unreachable,
)
from hbroker.operations.gateway_requests import JoinKeyError
from hbroker.operations.mqtt_sessions import ClientConnected, NoSession
from hbroker.protocol.packets import Reason, reason_name
from hbroker.rights.verified import InvalidToken

__all__ = [
    "NOT_FOUND",
    "REFUSED",
    "UNREACHABLE",
    "Problem",
    "Refusal",
    "exception_handlers",
    "refusals",
]

_MEDIA_TYPE: Final = "application/problem+json"
_BY_REASON: Final[dict[int, HTTPStatus]] = {
    Reason.REASON_NOT_AUTHORIZED: HTTPStatus.FORBIDDEN,
    Reason.REASON_TOPIC_NAME_INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    Reason.REASON_TOPIC_FILTER_INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    Reason.REASON_QUOTA_EXCEEDED: HTTPStatus.TOO_MANY_REQUESTS,
    Reason.REASON_PACKET_TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Reason.REASON_NOT_SERVING: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""The status for a reason of a node (docs/protocol.md §8). Any other: 409, the state of the network does not
allow it."""
_BY_ERROR: Final[tuple[tuple[type[HBrokerError], HTTPStatus], ...]] = (
    (InvalidTopic, HTTPStatus.UNPROCESSABLE_ENTITY),
    (PayloadTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (Unreachable, HTTPStatus.GATEWAY_TIMEOUT),
    (Backpressure, HTTPStatus.SERVICE_UNAVAILABLE),
    (NotConnected, HTTPStatus.SERVICE_UNAVAILABLE),
    (InvalidToken, HTTPStatus.UNPROCESSABLE_ENTITY),
    (ClientConnected, HTTPStatus.CONFLICT),
    (NoSession, HTTPStatus.NOT_FOUND),
    (JoinKeyError, HTTPStatus.SERVICE_UNAVAILABLE),
    (ConfigError, HTTPStatus.SERVICE_UNAVAILABLE),
    (ConfigErrors, HTTPStatus.SERVICE_UNAVAILABLE),
    (LocalError, HTTPStatus.UNPROCESSABLE_ENTITY),
)


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = Field("about:blank", description="`about:blank`: `title` says it all")
    title: str = Field(description="the phrase of the HTTP status")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="what went wrong, and what to do")
    reason: str | None = Field(
        None, description="the reason of the node that refused, by its name in the protocol: NOT_AUTHORIZED"
    )
    errors: list[str] | None = Field(None, description="each field of the request that is not valid, and why")


class Refusal(HTTPException):
    """A request that is refused, with this status and explanation."""

    def __init__(self, status: HTTPStatus, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail=detail, status_code=status, headers=headers)


def exception_handlers() -> dict[int | type[Exception], Any]:
    """The handlers of all errors that a request can end with. An error that is none of them is a defect:
    Litestar logs it, and answers 500."""
    return {HTTPException: _of_http, HBrokerError: _of_hbroker, OSError: _of_system}


def refusals(*statuses: HTTPStatus) -> dict[int, ResponseSpec]:
    """The problems with which a route may answer, for its OpenAPI description."""
    return {
        status.value: ResponseSpec(
            Problem, generate_examples=False, description=status.phrase, media_type=_MEDIA_TYPE
        )
        for status in statuses
    }


REFUSED: Final = refusals(HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
"""Of every route: the request is wrong, or its token does not allow it."""
NOT_FOUND: Final = refusals(HTTPStatus.NOT_FOUND)
UNREACHABLE: Final = refusals(
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
"""Of routes that ask the network: it refuses, or does not answer."""


def _of_http(_: Request[Any, Any, Any], error: HTTPException) -> Response[str]:
    extra = error.extra
    invalid = [_invalid_field(each) for each in extra] if isinstance(extra, list) else None
    return _response(HTTPStatus(error.status_code), error.detail, headers=error.headers, errors=invalid)


def _invalid_field(error: Any) -> str:
    if isinstance(error, dict):
        return f"{error.get('key') or error.get('source') or 'request'}: {error.get('message', '')}"
    return str(error)


def _of_hbroker(_: Request[Any, Any, Any], error: HBrokerError) -> Response[str]:
    if isinstance(error, RemoteError) and not isinstance(error, Unreachable):
        status = _BY_REASON.get(error.reason, HTTPStatus.CONFLICT)
    else:
        status = next(status for kind, status in _BY_ERROR if isinstance(error, kind))
    reason = reason_name(error.reason) if isinstance(error, RemoteError) else None
    headers = {"Retry-After": "1"} if status in _RETRIED else None
    return _response(status, str(error), reason=reason, headers=headers)


_RETRIED: Final = {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}


def _of_system(_: Request[Any, Any, Any], error: OSError) -> Response[str]:
    return _response(HTTPStatus.SERVICE_UNAVAILABLE, str(error), headers={"Retry-After": "1"})


def _response(
    status: HTTPStatus,
    detail: str,
    *,
    reason: str | None = None,
    headers: dict[str, str] | None = None,
    errors: list[str] | None = None,
) -> Response[str]:
    problem = Problem(
        type="about:blank", title=status.phrase, status=status, detail=detail, reason=reason, errors=errors
    )
    content = problem.model_dump_json(exclude_none=True)
    return Response(content, status_code=status, media_type=_MEDIA_TYPE, headers=headers)
