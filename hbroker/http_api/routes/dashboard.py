"""The files of the dashboard (docs/dashboard.md): a page of HTML, CSS and modules of JavaScript.

They need no token, and say nothing of the network. What the page shows, it requests below `/v1`, with the
token that the user gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Final

from litestar import Request, Response, get
from litestar.datastructures import State
from litestar.params import FromPath

from hbroker.http_api.problems import Refusal

__all__ = ["dashboard_file", "dashboard_page"]

_FOLDER: Final = Path(__file__).parent.parent / "dashboard"
_MEDIA_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "object-src 'none'",
    # The browser refuses to make HTML of text, wherever that comes from.
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "; ".join(_POLICY),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    tag: str


def _read_files() -> Mapping[str, _File]:
    """All files of the dashboard, by their names below its folder. What is not here is not served."""
    return {
        path.relative_to(_FOLDER).as_posix(): _File(
            content := path.read_bytes(),
            _MEDIA_TYPES[path.suffix],
            f'"{sha256(content).hexdigest()[:32]}"',
        )
        for path in _FOLDER.rglob("*.*")
        if path.suffix in _MEDIA_TYPES
    }


_FILES: Final = _read_files()


@get("/", exclude_from_auth=True, include_in_schema=False)
async def dashboard_page(request: Request[None, None, State]) -> Response[bytes]:
    """The page."""
    return _response(request, "index.html")


@get("/dashboard/{name:path}", exclude_from_auth=True, include_in_schema=False)
async def dashboard_file(request: Request[None, None, State], name: FromPath[str]) -> Response[bytes]:
    """A file of the page."""
    return _response(request, name.removeprefix("/"))


def _response(request: Request[None, None, State], name: str) -> Response[bytes]:
    file = _FILES.get(name)
    if file is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"the dashboard has no file {name!r}")
    headers = {**_HEADERS, "ETag": file.tag}
    if file.tag in request.headers.get("If-None-Match", ""):
        return Response(b"", status_code=HTTPStatus.NOT_MODIFIED, media_type=file.media_type, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
