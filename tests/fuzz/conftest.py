"""What the fuzzer needs of the machine."""

from tests.interop.conftest import with_mosquitto

__all__ = ["with_mosquitto"]
