"""Datagrams for tests of parsers: valid, odd and broken ones, all from a seeded generator.

`datagram` is built with protobuf and is valid. `odd_datagram` is written field by field after the schema,
with everything that the encoding allows and no library writes: repeated scalar fields, several members of a
oneof, packed and single elements, overlong varints, unknown fields, groups, unexpected wire types. If parsers
differ, then there. `mutated` damages bytes.
"""

from random import Random
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from hbroker._proto import packet_pb2 as pb

# Protobuf's stubs name two classes for each of these.
Field: TypeAlias = Any
Schema: TypeAlias = Any

VARINT, FIXED64, LENGTH_DELIMITED, START_GROUP, END_GROUP, FIXED32 = range(6)

TEXTS = ("", "a", "home/kitchen/oven", "$SYS/nodes/root", "+/#", "é/\u20ac/\U0001f600", "\0", "x" * 130)
NUMBERS = (0, 1, 2, 3, 127, 128, 300, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1)
NOT_UTF8 = (b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ok\xe2\x82")
EDGE_BYTES = (0x00, 0x01, 0x07, 0x0A, 0x12, 0x22, 0x23, 0x24, 0x42, 0x7F, 0x80, 0xFF)


def datagram(rng: Random) -> pb.Datagram:
    """A valid datagram with values in any of its fields."""
    message = pb.Datagram()
    fill(rng, message, chance=0.6)
    return message


def fill(rng: Random, message: Message, chance: float) -> None:
    """Sets each field with this probability, and one member of each oneof."""
    for field in chosen_fields(rng, message, chance):
        count = rng.choice((0, 1, 2, 5)) if field.is_repeated else 1
        for _ in range(count):
            if field.message_type is not None:
                target = getattr(message, field.name)
                inner = target.add() if field.is_repeated else target
                inner.SetInParent()
                fill(rng, inner, chance)
            elif field.is_repeated:
                getattr(message, field.name).append(scalar(rng, field))
            else:
                setattr(message, field.name, scalar(rng, field))


def chosen_fields(rng: Random, message: Message, chance: float) -> list[Field]:
    schema = message.DESCRIPTOR
    fields: list[Field] = [field for field in schema.fields if not in_oneof(field) and rng.random() < chance]
    for oneof in schema.oneofs:
        if in_oneof(oneof.fields[0]):
            # half of the time from those of the fast path: PUBLISH, `again` and PUBACK are the first ones
            fields.append(rng.choice(list(oneof.fields)[: rng.choice((3, None))]))
    return fields


def in_oneof(field: Field) -> bool:
    """Whether the field is in a real oneof. Each optional field has an artificial one."""
    return field.containing_oneof is not None and len(field.containing_oneof.fields) > 1


def scalar(rng: Random, field: Field) -> object:
    if field.type == FieldDescriptor.TYPE_STRING:
        return rng.choice(TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.randbytes(rng.choice((0, 1, 4, 16, 21, 140)))
    if field.type == FieldDescriptor.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == FieldDescriptor.TYPE_ENUM:
        return rng.choice((0, 1, 2, 3, 255, 256, 2**31 - 1, -1, -(2**31)))
    limit = 2**32 if field.type == FieldDescriptor.TYPE_UINT32 else 2**64
    return rng.choice(NUMBERS) % limit


def odd_datagram(rng: Random) -> bytes:
    """The fields of a datagram as no library writes them. Most results are valid."""
    return odd_message(rng, pb.Datagram.DESCRIPTOR, rng.choice((0.0, 0.002, 0.02)))


def odd_message(rng: Random, schema: Schema, evil: float) -> bytes:
    """`evil`: the probability that a choice is one that a parser must refuse."""
    fields: list[bytes] = []
    for _ in range(rng.choice((0, 1, 2, 3, 4, 6))):
        if fields and rng.random() < 0.1:
            fields.append(rng.choice(fields))
        elif rng.random() < 0.85:
            # half of the time one of the first few: in a packet, those of the fast path
            fields.append(odd_field(rng, rng.choice(schema.fields[: rng.choice((5, None))]), evil))
        else:
            number = rng.choice([field.number for field in schema.fields] + [30, 2**29 - 1])
            fields.append(unknown_field(rng, number, evil, depth=0))
    rng.shuffle(fields)
    return b"".join(fields)


def odd_field(rng: Random, field: Field, evil: float) -> bytes:
    if field.message_type is not None:
        return delimited(rng, field.number, odd_message(rng, field.message_type, evil), evil)
    if field.type == FieldDescriptor.TYPE_STRING:
        text = rng.choice(NOT_UTF8) if rng.random() < evil else rng.choice(TEXTS).encode()
        return delimited(rng, field.number, text, evil)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return delimited(rng, field.number, rng.randbytes(rng.choice((0, 1, 4, 16, 130))), evil)
    if field.type == FieldDescriptor.TYPE_FIXED64:
        return tag(rng, field.number, FIXED64, evil) + rng.randbytes(8)
    if field.is_repeated and rng.random() < 0.6:
        packed = b"".join(odd_varint(rng, rng.choice(NUMBERS), 10, evil) for _ in range(rng.randrange(5)))
        return delimited(rng, field.number, packed, evil)
    return tag(rng, field.number, VARINT, evil) + odd_varint(rng, rng.choice(NUMBERS), 10, evil)


def unknown_field(rng: Random, number: int, evil: float, depth: int) -> bytes:
    wire_type = rng.choice((6, 7, END_GROUP)) if rng.random() < evil else rng.choice((0, 1, 2, 3, 5))
    start = tag(rng, number, wire_type, evil)
    if wire_type == VARINT:
        return start + odd_varint(rng, rng.choice(NUMBERS), 10, evil)
    if wire_type in (FIXED64, FIXED32):
        return start + rng.randbytes(8 if wire_type == FIXED64 else 4)
    if wire_type == LENGTH_DELIMITED:
        return delimited(rng, number, rng.randbytes(rng.randrange(8)), evil)
    if wire_type != START_GROUP:
        return start
    if rng.random() < 0.05:
        return nested_groups(rng, number)
    numbers = [rng.choice((0, 1, 2, 8, 30)) for _ in range(rng.randrange(3))] if depth < 4 else []
    inside = b"".join(unknown_field(rng, inner, evil, depth + 1) for inner in numbers)
    end = number + 1 if rng.random() < evil else number
    return start + inside + tag(rng, end, END_GROUP, evil)


def nested_groups(rng: Random, number: int) -> bytes:
    """Nested groups, about as deep as parsers allow."""
    depth = rng.randint(95, 103)
    return varint(number << 3 | START_GROUP) * depth + varint(number << 3 | END_GROUP) * depth


def delimited(rng: Random, number: int, content: bytes, evil: float) -> bytes:
    length = len(content) + (rng.choice((-1, 1, 100, 2**31, 2**32)) if rng.random() < evil else 0)
    return tag(rng, number, LENGTH_DELIMITED, evil) + odd_varint(rng, max(length, 0), 5, evil) + content


def tag(rng: Random, number: int, wire_type: int, evil: float) -> bytes:
    if rng.random() < evil:
        number = rng.choice((0, 2**29, 2**32))
    return odd_varint(rng, number << 3 | wire_type, 5, evil)


def odd_varint(rng: Random, value: int, limit: int, evil: float) -> bytes:
    """A varint, sometimes in more bytes than it needs, up to `limit`. A tenth byte may contain meaningless
    bits."""
    encoded = varint(value)
    if rng.random() < evil:
        return encoded[:-1] + b"\x80" * 10
    if rng.random() < 0.1 and len(encoded) < limit:
        more = rng.randint(1, limit - len(encoded))
        encoded = encoded[:-1] + bytes([encoded[-1] | 0x80]) + b"\x80" * (more - 1) + b"\0"
    if len(encoded) == 10 and rng.random() < 0.5:
        encoded = encoded[:-1] + bytes([rng.randrange(128)])
    return encoded


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def mutated(rng: Random, data: bytes, other: bytes) -> bytes:
    """`data` with one to three mutations. A splice takes bytes from `other`."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        data = mutation(rng, data, other)
    return data


def mutation(rng: Random, data: bytes, other: bytes) -> bytes:
    at = rng.randint(0, len(data))
    to = min(len(data), at + rng.choice((1, 1, 2, 8, 40)))
    match rng.randrange(8):
        case 0:  # flips a bit
            return (
                data[:at] + bytes(byte ^ 1 << rng.randrange(8) for byte in data[at : at + 1]) + data[at + 1 :]
            )
        case 1:  # sets a byte to one that is hard to parse
            return data[:at] + bytes([rng.choice(EDGE_BYTES)]) + data[at + 1 :]
        case 2:  # changes a length, or any other byte, by one or two
            return (
                data[:at]
                + bytes((b + rng.choice((-2, -1, 1, 2))) % 256 for b in data[at:to][:1])
                + data[at + 1 :]
            )
        case 3:
            return data[:at]
        case 4:
            return data[:at] + rng.randbytes(rng.choice((1, 2, 5))) + data[at:]
        case 5:
            return data[:at] + data[to:]
        case 6:
            return data[:to] + data[at:to] * rng.choice((1, 2)) + data[to:]
        case _:
            cut = rng.randint(0, len(other))
            return data[:at] + other[cut:]
