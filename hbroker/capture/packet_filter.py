"""The kernel's packet filter for a capture: UDP from or to some ports, in classic BPF (linux/filter.h).

A busy machine has far more datagrams than Python can read. So the kernel drops those that are not wanted. The
program sees a packet from its IP header on. Jumps go forward only, over at most 255 instructions, which
bounds the number of ports.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["MOST_PORTS", "attach", "program"]

MOST_PORTS: Final = 56
"""With more ports than this, all of UDP passes."""

_SO_ATTACH_FILTER: Final = 26
_WHOLE: Final = 0xFFFF
_UDP: Final = 17

_LOAD_BYTE: Final = 0x30
_LOAD_HALF: Final = 0x28
_LOAD_HALF_BEHIND: Final = 0x48  # at an offset from the index register
_INDEX_HEADER_LENGTH: Final = 0xB1  # the index register becomes the length of the IPv4 header
_AND: Final = 0x54
_IF_EQUAL: Final = 0x15
_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06

_NEXT: Final = ""


@dataclass(frozen=True, slots=True)
class _Instruction:
    """An instruction. `then`, `otherwise`: labels to jump to; empty: the next one. `label`: its own."""

    code: int
    operand: int
    then: str = _NEXT
    otherwise: str = _NEXT
    label: str = ""


def program(ports: Collection[int]) -> tuple[tuple[int, int, int, int], ...]:
    """Code, jump if true, jump if false, and operand of each instruction. Without ports, all of UDP
    passes."""
    instructions = list(_instructions(sorted(ports) if len(ports) <= MOST_PORTS else []))
    places = {instruction.label: place for place, instruction in enumerate(instructions) if instruction.label}

    def jump(place: int, label: str) -> int:
        return places[label] - place - 1 if label else 0

    return tuple(
        (
            instruction.code,
            jump(place, instruction.then),
            jump(place, instruction.otherwise),
            instruction.operand,
        )
        for place, instruction in enumerate(instructions)
    )


def attach(to: socket.socket, ports: Collection[int]) -> None:
    """Attaches the filter for these ports to a socket. Raises OSError."""
    instructions = program(ports)
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)
    memory = ctypes.create_string_buffer(code)
    to.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(instructions), ctypes.addressof(memory))
    )


def _instructions(ports: list[int]) -> Iterator[_Instruction]:
    yield _Instruction(_LOAD_BYTE, 0)
    yield _Instruction(_AND, 0xF0)
    yield _Instruction(_IF_EQUAL, 0x40, otherwise="not 4")
    yield _Instruction(_LOAD_BYTE, 9)
    yield _Instruction(_IF_EQUAL, _UDP, otherwise="refuse")
    yield _Instruction(_LOAD_HALF, 6)
    yield _Instruction(_IF_ANY_BIT, 0x1FFF, then="refuse")  # a later fragment has no ports
    yield _Instruction(_INDEX_HEADER_LENGTH, 0)
    yield from _ports(ports, _LOAD_HALF_BEHIND, 0)
    yield _Instruction(_LOAD_BYTE, 0, label="not 4")
    yield _Instruction(_AND, 0xF0)
    yield _Instruction(_IF_EQUAL, 0x60, otherwise="refuse")
    yield _Instruction(_LOAD_BYTE, 6)
    yield _Instruction(_IF_EQUAL, _UDP, otherwise="refuse")
    yield from _ports(ports, _LOAD_HALF, 40)
    yield _Instruction(_RETURN, _WHOLE, label="accept")
    yield _Instruction(_RETURN, 0, label="refuse")


def _ports(ports: list[int], load: int, header: int) -> Iterator[_Instruction]:
    """Loads both ports and compares them; ends with `accept` or with a return."""
    if not ports:
        yield _Instruction(_RETURN, _WHOLE)
        return
    for place in (header, header + 2):
        yield _Instruction(load, place)
        for port in ports:
            yield _Instruction(_IF_EQUAL, port, then="accept")
    yield _Instruction(_RETURN, 0)
