"""The shells can be tested where the native core is not built."""

from __future__ import annotations

from tests.protocol import client_events

client_events.stand_in()
