"""Fixtures for the programs that these tests need."""

from tests.interop.conftest import with_mosquitto

__all__ = ["with_mosquitto"]
