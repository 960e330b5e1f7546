"""The records of a handover that the core reads and writes are those of Python's protobuf (§5.4)."""

from collections.abc import Sequence
from itertools import accumulate

from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from hbroker._native import decode_gone, decode_queued, decode_seen, encode_gone, encode_queued, encode_seen
from hbroker._proto import packet_pb2 as pb

U64 = st.integers(0, 2**64 - 1)
BITS = st.integers(1, 2**64 - 1)
WORDS_END = 2**58

queued = st.tuples(
    U64,
    st.binary(max_size=40),
    st.integers(0, 2),
    st.tuples(st.none() | U64, st.just(0)) | st.tuples(st.none(), st.integers(0, 2**32 - 1)),
    st.text(),
    st.integers(0, 2),
    st.booleans(),
    st.tuples(U64, U64),
)
steps = st.lists(st.integers(1, 2**30) | st.integers(1, 3), max_size=30)


@given(queued)
def test_protobuf_reads_the_queued_records_that_the_core_writes(
    values: tuple[int, bytes, int, tuple[int | None, int], str, int, bool, tuple[int, int]],
) -> None:
    written = encode_queued(values)
    record = pb.QueuedRecord.FromString(written)
    retained_for = record.retained_for if record.HasField("retained_for") else None
    what = record.session, record.publish, record.qos, (retained_for, record.shared_for)
    where = record.queue, record.number
    assert (*what, record.group, record.overflow, record.launched, where) == values
    assert record.SerializeToString(deterministic=True) == written
    assert decode_queued(written) == values


@given(U64, st.integers(0, 2**57), st.booleans(), steps, st.data())
def test_protobuf_reads_the_seen_records_that_the_core_writes(
    publisher: int, floor: int, from_floor: bool, steps: list[int], data: st.DataObject
) -> None:
    first = floor if from_floor else floor + 1
    words = [(index, data.draw(BITS)) for index in accumulate(steps, initial=first)]
    written = encode_seen((publisher, floor, words))
    record = pb.SeenRecord.FromString(written)
    assert (record.publisher, record.floor) == (publisher, floor)
    assert words_of(record) == words
    assert decode_seen(written) == (publisher, floor, words)


@given(U64, st.integers(0, 2**60), st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 2**40))), U64)
def test_protobuf_reads_the_gone_records_that_the_core_writes(
    queue: int, below: int, steps: list[tuple[int, int]], launched: int
) -> None:
    runs, end = [], below
    for step, count in steps:
        runs.append((end + step, end + step + count - 1))
        end += step + count
    written = encode_gone((queue, below, runs, launched))
    record = pb.GoneRecord.FromString(written)
    assert (record.queue, record.below, record.launched) == (queue, below, launched)
    assert list(record.runs) == [number for step in steps for number in step]
    assert decode_gone(written) == (queue, below, runs, launched)


@given(U64, st.lists(U64 | st.integers(0, 3), max_size=8))
def test_invalid_runs_are_refused(below: int, values: list[int]) -> None:
    pairs = list(zip(values[::2], values[1::2], strict=False))
    is_valid = len(values) % 2 == 0 and all(count > 0 for _, count in pairs)
    is_valid = is_valid and below + sum(values) < 2**64
    data = pb.GoneRecord(below=below, runs=values).SerializeToString()
    assert (decode_gone(data) is not None) == is_valid


@given(st.binary(max_size=60))
def test_the_core_and_protobuf_refuse_the_same_queued_records(data: bytes) -> None:
    try:
        record = pb.QueuedRecord.FromString(data)
    except DecodeError:
        assert decode_queued(data) is None
        return
    values = decode_queued(data)
    assert values is not None
    assert values[:2] == (record.session, record.publish)


@given(U64, U64, st.lists(U64 | st.integers(0, 3), max_size=8), st.booleans())
def test_invalid_words_are_refused(publisher: int, floor: int, values: Sequence[int], packed: bool) -> None:
    record = pb.SeenRecord(publisher=publisher, floor=floor, words=values)
    data = record.SerializeToString()
    if not packed:
        # a single element, which a conforming parser adds to the packed ones
        data += b"\x18\x07\x18\x01"
        record.words.extend((7, 1))
    pairs = list(zip(record.words[::2], record.words[1::2], strict=False))
    indices = [index for index, _ in words_of(record)]
    is_valid = (
        len(record.words) % 2 == 0
        and floor <= WORDS_END
        and all(step > 0 for step, _ in pairs[1:])
        and all(bits > 0 for _, bits in pairs)
        and all(index < WORDS_END for index in indices)
    )
    assert decode_seen(data) == ((publisher, floor, words_of(record)) if is_valid else None)


def words_of(record: pb.SeenRecord) -> list[tuple[int, int]]:
    """The pairs (index, bits), as the .proto defines them."""
    indices = list(accumulate(record.words[::2], initial=record.floor))[1:]
    return list(zip(indices, record.words[1::2], strict=False))
