"""What tshark shows of datagrams with the dissector for Wireshark, and what protobuf says of the same bytes."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from hbroker._proto import packet_pb2 as pb
from hbroker.capture.frames import PcapFile
from tests.capture.datagrams import Address, sent

Values: TypeAlias = dict[str, list[str]]
"""The values of fields by name, in the order of the datagram."""

LUA: Final = Path(__file__).parents[2] / "hbroker" / "capture" / "hbroker.lua"
MALFORMED: Final = "hbroker.malformed"
_BETWEEN_VALUES: Final = "\x1f"
_PATIENCE: Final = 100.0
_SERIALISED: Final = {
    "hbroker.authenticated.packet": pb.Packet,
    "hbroker.will.publish": pb.Publish,
    "hbroker.queued_record.publish": pb.Publish,
    "hbroker.will_record.publish": pb.Publish,
    "hbroker.transfer.retained": pb.Publish,
}
_MOST_SERIALISED: Final = 3
_BODIES: Final = {
    field.message_type.name: field.name
    for field in pb.Packet.DESCRIPTOR.oneofs_by_name["body"].fields
    if field.message_type is not None
}


def write_pcap(file: Path, datagrams: Iterable[tuple[Address, Address, bytes]]) -> Path:
    """Writes datagrams with their sources and destinations. Returns the file."""
    opened = PcapFile(str(file))
    for number, (source, destination, data) in enumerate(datagrams):
        packet = sent(source, destination, data)
        packet.time = number / 1e3
        opened.write(packet)
    opened.close()
    return file


def run_tshark(program: str, pcap: Path, *flags: str, env: dict[str, str] | None = None) -> str:
    """What tshark prints of a file, with the dissector. Nothing in it may be an error of Lua."""
    command = [program, "-X", f"lua_script:{LUA}", "-n", "-r", str(pcap), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert "Lua" not in done.stdout + done.stderr.replace("lua_script", "")
    return done.stdout


def shown(program: str, pcap: Path, fields: list[str], *flags: str, env: dict[str, str] | None = None) -> list[Values]:
    """What tshark shows of each datagram: the values of these fields."""
    named = [flag for field in fields for flag in ("-e", field)]
    output = run_tshark(
        program, pcap, "-T", "fields", "-E", f"aggregator={_BETWEEN_VALUES}", *named, *flags, env=env
    )
    rows = [line.split("\t") for line in output.split("\n")[:-1]]
    return [
        {field: text.split(_BETWEEN_VALUES) for field, text in zip(fields, row, strict=True) if text}
        for row in rows
    ]


def field_names() -> list[str]:
    """All fields of the protocol, as Wireshark names them."""
    return [
        f"hbroker.{name_of(message)}.{field.name}"
        for message in pb.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
        if field.message_type is None
    ]


def name_of(schema: Any) -> str:
    """What a message is called in the names of fields."""
    snake = "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(schema.name))
    return _BODIES.get(schema.name, snake)


def values_in(message: Message) -> tuple[Values, bool]:
    """What should be shown of a message, and whether all serialised messages in it are valid."""
    found: Values = defaultdict(list)
    is_valid = all([_is_valid(found, *each, 0) for each in _each(message)])
    return dict(found), is_valid


def _each(message: Message) -> Iterator[tuple[str, FieldDescriptor, Any]]:
    """Each value of each field of a message. An enum is shown if it is absent, too."""
    for field in message.DESCRIPTOR.fields:
        name, value = f"hbroker.{name_of(message.DESCRIPTOR)}.{field.name}", getattr(message, field.name)
        if field.is_repeated:
            yield from ((name, field, each) for each in value)
        elif field.has_presence:
            if message.HasField(field.name):
                yield name, field, value
        elif value or field.enum_type is not None:
            yield name, field, value


def _is_valid(found: Values, name: str, field: FieldDescriptor, value: Any, serialised: int) -> bool:
    inner = value
    if field.message_type is None:
        found[name].append(_in_words(field, value))
        if name not in _SERIALISED or serialised == _MOST_SERIALISED:
            return True
        serialised += 1
        try:
            inner = _SERIALISED[name].FromString(value)
        except DecodeError:
            return False
    return all([_is_valid(found, *each, serialised) for each in _each(inner)])


def _in_words(field: FieldDescriptor, value: Any) -> str:
    """A value as tshark prints it."""
    if isinstance(value, bytes):
        return value.hex()
    if field.type == FieldDescriptor.TYPE_FIXED64:
        return f"{value:#018x}"
    if isinstance(value, bool):
        return str(int(value))
    return str(value)
