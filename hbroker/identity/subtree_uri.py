"""A subtree as a URI, for the subjectAltName of a certificate (RFC 5280 §4.2.1.6).

    hbroker:/               the whole hierarchy: the subtree of the root, whose text is empty
    hbroker:/home/kitchen   the subtree `home/kitchen`
    hbroker:/caf%C3%A9      the subtree `café`

The scheme is `hbroker`. The path is `/` and the subtree in UTF-8. All bytes but `/` and the unreserved
characters (letters, digits, `-`, `.`, `_`, `~`) are percent-encoded, with capital letters as digits (RFC 3986
§2.1, §2.3).

The leading `/` belongs to the URI, not to the subtree. RFC 5280 requires a part after the scheme, so
`hbroker:` alone cannot be the URI of the root.

A subtree has exactly one URI, so URIs can be compared without decoding. Others are refused, such as
`hbroker:/home%2Fkitchen`.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote_to_bytes

from hbroker.subtree import is_grantable

__all__ = ["has_scheme", "parse_uri", "to_uri"]

_SCHEME: Final = "hbroker"
_PREFIX: Final = f"{_SCHEME}:/"


def has_scheme(uri: str) -> bool:
    """Whether the URI has the scheme of subtrees, in whatever case (RFC 3986 §3.1)."""
    return uri.partition(":")[0].lower() == _SCHEME


def to_uri(subtree: str) -> str:
    """The URI of a subtree. Raises ValueError if no node may own such a subtree."""
    if subtree and not is_grantable(subtree):
        raise ValueError(f"{subtree[:80]!r} is not a subtree")
    return _PREFIX + quote(subtree, safe="/")


def parse_uri(uri: str) -> str:
    """The inverse of `to_uri`. Raises ValueError if the text is not the URI of a subtree."""
    subtree = unquote_to_bytes(uri.removeprefix(_PREFIX)).decode()
    if to_uri(subtree) != uri:
        raise ValueError(f"{uri[:80]!r} is not the URI of a subtree")
    return subtree
