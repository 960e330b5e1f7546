"""Control logic can be tested where the native core is not built: then a stand-in takes its place."""

from __future__ import annotations

import importlib.util
import sys

if importlib.util.find_spec("hbroker._native") is None:
    from tests.protocol import native_stand_in

    sys.modules["hbroker._native"] = native_stand_in
