"""An authority of tests, and what hypothesis makes: names of nodes, and subtrees."""

from __future__ import annotations

import string

from hypothesis import strategies as st

from hbroker.identity.authority import Authority

NOW = 1_800_000_000
DAY_S = 86_400

AUTHORITY = Authority.create("house", NOW)
OTHER_AUTHORITY = Authority.create("house", NOW)

_ALNUM = string.ascii_letters + string.digits
NAMES = st.builds(str.__add__, st.sampled_from(_ALNUM), st.text(_ALNUM + "_.-", max_size=62))
_LEVELS = st.text(
    st.characters(exclude_characters="/+#\0", exclude_categories=["Cs"]), min_size=1, max_size=8
) | st.sampled_from(["$SYS", ".", "..", "%", "%2F", "a b", "a:b@c?d", "é"])
SUBTREES = st.lists(_LEVELS, max_size=4).map("/".join)
