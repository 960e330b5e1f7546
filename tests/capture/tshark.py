"""What tshark shows with the dissector for Wireshark, and what protobuf says of the same bytes."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from hbroker._proto import packet_pb2 as pb

__all__ = ["Shown", "Tshark", "Values", "values_of", "write_pcap"]

Values: TypeAlias = dict[str, list[str]]
"""The values of fields by name, in the order of the datagram."""
Field: TypeAlias = Any
"""A FieldDescriptor, for which protobuf's stubs name two classes."""

_LUA: Final = Path(__file__).parents[2] / "hbroker" / "capture" / "hbroker.lua"
_PATIENCE: Final = 100.0
_LINKTYPE_RAW: Final = 101
_LOOPBACK: Final = bytes([127, 0, 0, 1])
_BETWEEN_VALUES: Final = "\x1f"
_MOST_COMPARED: Final = 200
"""Characters. tshark cuts long values."""
_ABOUT: Final = {
    "protocol": "_ws.col.Protocol",
    "info": "_ws.col.Info",
    "notes": "_ws.expert.message",
    "malformed": "hbroker.malformed",
    "unopened": "hbroker.unopened",
}
_SERIALISED: Final[dict[str, Any]] = {
    "hbroker.authenticated.packet": pb.Packet,
    "hbroker.will.publish": pb.Publish,
    "hbroker.queued_record.publish": pb.Publish,
    "hbroker.will_record.publish": pb.Publish,
    "hbroker.transfer.retained": pb.Publish,
}
"""Bytes that are messages. They are shown, three within one another at most."""
_MOST_SERIALISED: Final = 3
_BODIES: Final = {
    field.message_type.name: field.name
    for field in pb.Packet.DESCRIPTOR.oneofs_by_name["body"].fields
    if field.message_type is not None
}


class Shown(NamedTuple):
    """What tshark shows of one frame: its columns, the texts of its expert information, which of that is the
    dissector's, and its fields."""

    protocol: str
    info: str
    notes: list[str]
    is_malformed: bool
    is_unopened: bool
    fields: Values

    @property
    def is_ours(self) -> bool:
        """Whether the frame is recognised."""
        return self.protocol == "HBROKER"


class Tshark:
    """tshark with the dissector. `key_log`: the value of its preference."""

    def __init__(self, program: str, key_log: Path | None = None) -> None:
        self._program = program
        self._key_log = [] if key_log is None else ["-o", f"hbroker.key_log:{key_log}"]

    def run(self, pcap: Path, *flags: str, **env: str) -> str:
        """What it prints of a file. Nothing in it may be an error of Lua."""
        command = [self._program, "-n", "-X", f"lua_script:{_LUA}", *self._key_log, "-r", str(pcap), *flags]
        inherited = {name: value for name, value in os.environ.items() if name != "HBROKER_KEYLOG"}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE, check=False, env=inherited | env
        )
        assert done.returncode == 0, done.stderr
        assert not re.search(r"\bLua\b|\.lua:\d", done.stdout + done.stderr), done.stderr
        return done.stdout

    def show(self, pcap: Path, *more: str, **env: str) -> list[Shown]:
        """What it shows of each frame: all fields of the protocol, and `more`."""
        names = [*_ABOUT.values(), *_field_names(), *more]
        fields = [flag for name in names for flag in ("-e", name)]
        output = self.run(pcap, "-T", "fields", "-E", f"aggregator={_BETWEEN_VALUES}", *fields, **env)
        return [_shown(names, line.split("\t")) for line in output.split("\n")[:-1]]


def write_pcap(file: Path, datagrams: Iterable[bytes], source_port: int, port: int) -> Path:
    """Writes datagrams in IP packets of the loopback interface, without checksums. Returns the file."""
    with file.open("wb") as pcap:
        pcap.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, _LINKTYPE_RAW))
        for number, data in enumerate(datagrams):
            size = 28 + len(data)
            ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, size, number, 0, 64, 17, 0, _LOOPBACK, _LOOPBACK)
            udp = struct.pack("!HHHH", source_port, port, size - 20, 0)
            pcap.write(struct.pack("<IIII", number, 0, size, size) + ip + udp + data)
    return file


def _shown(names: list[str], row: list[str]) -> Shown:
    found = {
        name: [value[:_MOST_COMPARED] for value in text.split(_BETWEEN_VALUES)]
        for name, text in zip(names, row, strict=True)
        if text
    }
    about = {key: found.pop(name, []) for key, name in _ABOUT.items()}
    return Shown(
        "".join(about["protocol"]),
        "".join(about["info"]),
        about["notes"],
        bool(about["malformed"]),
        bool(about["unopened"]),
        found,
    )


# What protobuf says -----------------------------------------------------------------------------------------


def values_of(datagram: Message) -> tuple[Values, bool]:
    """What is to be shown of a datagram, and whether all serialised messages in it are valid."""
    found: Values = defaultdict(list)
    is_valid = all([_add(found, *each, serialised=0) for each in _each(datagram)])
    # Empty texts cannot be told from nothing.
    return {name: values for name, values in found.items() if any(values)}, is_valid


def _field_names() -> list[str]:
    """The fields of the protocol that are no messages, as Wireshark names them."""
    messages = pb.DESCRIPTOR.message_types_by_name.values()
    return [_name(field) for message in messages for field in message.fields if field.message_type is None]


def _name(field: Field) -> str:
    schema = field.containing_type
    snake = re.sub(r"(?<!^)([A-Z])", r"_\1", schema.name).lower()
    return f"hbroker.{_BODIES.get(schema.name, snake)}.{field.name}"


def _each(message: Message) -> Iterator[tuple[Field, Any]]:
    """Each value of each field of a message. An enum is shown if it is absent, too."""
    for field in message.DESCRIPTOR.fields:
        value: Any = getattr(message, field.name)
        if field.is_repeated:
            yield from ((field, each) for each in value)
        elif message.HasField(field.name) if field.has_presence else value or field.enum_type is not None:
            yield field, value


def _add(found: Values, field: Field, value: Any, *, serialised: int) -> bool:
    """Adds what is shown of a value. False: it is, or has in it, a serialised message that is not valid."""
    inner = value
    if field.message_type is None:
        found[_name(field)].append(_in_words(field, value)[:_MOST_COMPARED])
        if _name(field) not in _SERIALISED or serialised == _MOST_SERIALISED:
            return True
        serialised += 1
        try:
            inner = _SERIALISED[_name(field)].FromString(value)
        except DecodeError:
            return False
    return all([_add(found, *each, serialised=serialised) for each in _each(inner)])


def _in_words(field: Field, value: Any) -> str:
    """A value as tshark prints it."""
    if isinstance(value, bytes):
        return value.hex() or "<MISSING>"
    if isinstance(value, bool):
        return str(int(value))
    if field.type == FieldDescriptor.TYPE_FIXED64:
        return f"{value:#018x}"
    return str(value).replace("\0", "\u2400")
