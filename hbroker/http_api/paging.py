"""Lists in pages: `?limit=` and `?cursor=`.

The items of a list are in the order of their keys. The cursor of the next page says the key of the last item
of this page. So a client that reads a list while it changes sees each item once that is there all the time.
"""

from __future__ import annotations

import base64
import binascii
import heapq
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Annotated, Final, Generic, TypeVar

from litestar.params import Parameter
from pydantic import BaseModel, Field

from hbroker.http_api.problems import Refusal

__all__ = ["Cursor", "Limit", "Page", "page_of"]

T = TypeVar("T")

MOST_ITEMS: Final = 1_000
Limit = Annotated[int, Parameter(ge=1, le=MOST_ITEMS, description="the most items of the page")]
Cursor = Annotated[
    str | None, Parameter(max_length=4_096, description="`next` of the page before; none: the first page")
]


class Page(BaseModel, Generic[T]):
    """A part of a list, in the order of its keys."""

    items: list[T]
    next: str | None = Field(description="the cursor of the next page; null: this is the last one")


def page_of(items: Iterable[T], key: Callable[[T], str], limit: int, cursor: str | None) -> Page[T]:
    """The page of a list behind a cursor. `key`: by which it is ordered, of which no two items have the same.

    Raises Refusal if the cursor is none.
    """
    after = _decoded(cursor) if cursor is not None else None
    behind = (item for item in items if after is None or key(item) > after)
    found = heapq.nsmallest(limit + 1, behind, key)
    page, rest = found[:limit], found[limit:]
    return Page(items=page, next=_encoded(key(page[-1])) if rest else None)


def _encoded(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def _decoded(cursor: str) -> str:
    try:
        data = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        return data.decode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        raise Refusal(HTTPStatus.BAD_REQUEST, "the cursor is not that of a page: leave it out") from None
