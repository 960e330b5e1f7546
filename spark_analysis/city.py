"""The synthetic telemetry of a city, as columns of a row number.

A city has buildings. A building has 4 floors of 5 rooms with 5 devices each, so 100 topics, such as
`city/b0042/f2/r3/camera`. The popularity of buildings follows Zipf's law, and one node owns neighbouring
buildings, so the nodes' loads differ, too. Load varies with the hour of the day, and grows a little from day
to day. A gateway also counts every tenth topic.

Every value is a hash of the seed and the row's number. So a row is the same in whichever task it is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from .data.schema import BUCKETS, GATEWAY, NODE, NODES, TOPICS
from .measures.loads import COUNTS

BEGIN: Final = datetime(2026, 1, 5, tzinfo=UTC)
STARTED_AT: Final = int(BEGIN.timestamp()) * 1_000_000

_FLOORS, _ROOMS = 4, 5
_DEVICES: Final = ("temperature", "humidity", "motion", "power", "camera")
_WEIGHTS: Final = (1.0, 1.0, 2.0, 4.0, 40.0)
_SIZES: Final = (8, 8, 2, 24, 20_000)
_FAN_OUT: Final = (1.0, 0.0, 5.0, 1.2, 1.6)
_TOPICS_EACH: Final = _FLOORS * _ROOMS * len(_DEVICES)
_OVER_GATEWAYS: Final = 10
"""One topic in this number also goes over a gateway."""

_MEAN_RATE: Final = 12_000.0
"""Messages a second for each node of the network."""
_GROWTH_A_DAY: Final = 0.15
_WORKERS: Final = 2
BASE_CPU: Final = 0.02
IN_US: Final = 9.0
OUT_US: Final = 5.0
"""The CPU costs of the synthetic nodes, which the regression must find."""
_SAMPLED: Final = 16
_PRIMES: Final = (7_919, 104_729, 1_299_709)


@dataclass(frozen=True)
class City:
    """The size and the seed. `rows`: of topics; the rows of nodes come in addition."""

    rows: int
    nodes: int
    buildings: int
    seed: int
    hours: float = 24.0
    gateways: int = 2

    @property
    def topics(self) -> int:
        """The number of distinct topics."""
        return self.buildings * _TOPICS_EACH

    @property
    def rows_of_interval(self) -> int:
        """Rows of topics in an interval: one for each topic at its owner, and one in ten at a gateway."""
        return self.topics + self.topics // _OVER_GATEWAYS

    @property
    def intervals(self) -> int:
        """The number of intervals. The last one may be incomplete."""
        return -(-self.rows // self.rows_of_interval)

    @property
    def seconds(self) -> float:
        """The length of an interval in seconds."""
        return self.hours * 3600 / self.intervals

    @cached_property
    def unit_rate(self) -> float:
        """Messages a second of a topic of weight 1 in the building of rank 1."""
        buildings = math.fsum(1 / rank for rank in range(1, self.buildings + 1))
        return self.nodes * _MEAN_RATE / (buildings * _FLOORS * _ROOMS * sum(_WEIGHTS))

    @property
    def stride(self) -> int:
        """A number coprime to the number of buildings. It permutes the ranks of the buildings."""
        return next((prime for prime in _PRIMES if self.buildings % prime), 1)


def topic_rows(spark: SparkSession, city: City, tasks: int) -> DataFrame:
    """The rows of topics, with the columns of `schema`."""
    rows = spark.range(0, city.rows, 1, tasks)
    interval = F.expr(f"id div {city.rows_of_interval}")
    place = F.col("id") % city.rows_of_interval
    rows = rows.select(
        "id",
        _at(city, interval).alias("at"),
        (place >= city.topics).alias("is_gateway"),
        F.when(place < city.topics, place).otherwise((place - city.topics) * _OVER_GATEWAYS).alias("number"),
    )
    rows = rows.withColumn("building", F.expr(f"number div {_TOPICS_EACH}"))
    rows = rows.withColumn("device", (F.col("number") % len(_DEVICES)).cast("int"))
    rows = rows.withColumn("messages_in", _messages(city))
    fan_out = _of_device(_FAN_OUT) * (0.7 + 0.6 * _uniform(city, 2))
    rows = rows.withColumn("messages_out", F.floor(F.col("messages_in") * fan_out))
    size = _of_device(_SIZES).cast("bigint")
    return rows.select(
        _node_name(city).alias("node"),
        F.when(F.col("is_gateway"), GATEWAY).otherwise(NODE).alias("role"),
        F.lit(STARTED_AT).cast("bigint").alias("run"),
        "at",
        F.lit(city.seconds).alias("seconds"),
        _topic().alias("topic"),
        "messages_in",
        (F.col("messages_in") * size).alias("bytes_in"),
        "messages_out",
        (F.col("messages_out") * size).alias("bytes_out"),
        F.col("messages_in").alias("whole_in"),
        F.col("messages_out").alias("whole_out"),
    ).select(*TOPICS.names)


def node_rows(topics: DataFrame, city: City) -> DataFrame:
    """The rows of nodes that belong to the rows of topics: sums that agree, and the CPU time that they
    cost."""
    rows = topics.groupBy("role", "node", "run", "at", "seconds").agg(
        *[F.sum(name).alias(name) for name in COUNTS]
    )
    noise = _hashed(F.xxhash64("node", "at", F.lit(city.seed)))
    messages_us = IN_US * F.col("messages_in") + OUT_US * F.col("messages_out")
    cpu = (BASE_CPU * F.col("seconds") + messages_us / 1e6) * (0.98 + 0.04 * noise)
    rows = rows.withColumns({"noise": noise, "cpu_s": cpu, "workers": F.lit(_WORKERS)})
    rows = rows.withColumn("busy", F.col("cpu_s") / (F.col("seconds") * _WORKERS))
    lost = F.floor(F.col("messages_out") * 0.002 * F.greatest(F.col("busy") - 0.35, F.lit(0.0)))
    is_node = F.col("role") == NODE
    held = F.floor(200 + 50 * noise).cast("bigint")
    named = {
        "address": F.concat(F.lit("192.0.2.1:"), (F.abs(F.hash("node")) % 50_000 + 7_700).cast("string")),
        "parent": F.when(is_node & (F.col("node") != "root"), "root"),
        "subtrees": F.when(is_node, F.array("node")).otherwise(F.array().cast("array<string>")),
        "rss_bytes": F.lit(60_000_000).cast("bigint") + held * 4_096,
        "sessions": held,
        "subscriptions": held * 2,
        "publishers": held,
        "connections": F.when(is_node, F.lit(0)).otherwise(held).cast("bigint"),
        "datagrams_in": F.col("messages_in"),
        "datagrams_out": F.col("messages_out"),
        "queued_messages": F.floor(F.col("busy") * 1_000 * noise),
        "queued_bytes": F.floor(F.col("busy") * 1_000 * noise) * 64,
        "drops": F.when(lost > 0, F.create_map(F.lit("queue_full"), lost)).otherwise(
            F.create_map().cast("map<string,bigint>")
        ),
        "latency": _latencies(),
        "latency_sampled": F.lit(_SAMPLED),
    }
    made = rows.withColumns(named)
    return made.select(*[F.col(field.name).cast(field.dataType).alias(field.name) for field in NODES])


def _messages(city: City) -> Column:
    """Messages of a topic in an interval. At least one: a topic without traffic has no row."""
    rank = (F.col("building") * city.stride) % city.buildings + 1
    days = (F.unix_micros("at") - STARTED_AT) / 86_400e6
    by_hour = 1 + 0.6 * F.sin((days - 9 / 24) * (2 * math.pi))
    rate = city.unit_rate * _of_device(_WEIGHTS) / rank * by_hour * (1 + _GROWTH_A_DAY * days)
    return F.greatest(F.floor(rate * city.seconds * (0.8 + 0.4 * _uniform(city, 1))), F.lit(1).cast("bigint"))


def _at(city: City, interval: Column) -> Column:
    return F.timestamp_micros((F.lit(STARTED_AT) + interval * (city.seconds * 1e6)).cast("bigint"))


def _node_name(city: City) -> Column:
    """Neighbouring buildings have one owner. The first owner is the root."""
    owner = F.floor(F.col("building") * city.nodes / city.buildings)
    node = F.when(owner == 0, "root").otherwise(F.concat(F.lit("n"), F.lpad(owner.cast("string"), 3, "0")))
    gateway = F.concat(F.lit("gateway"), (F.col("building") % city.gateways + 1).cast("string"))
    return F.when(F.col("is_gateway"), gateway).otherwise(node)


def _topic() -> Column:
    room = F.expr(f"number div {len(_DEVICES)}")
    names = F.array(*[F.lit(name) for name in _DEVICES])
    return F.concat(
        F.lit("city/b"),
        F.lpad(F.col("building").cast("string"), 4, "0"),
        F.lit("/f"),
        (F.floor(room / _ROOMS) % _FLOORS + 1).cast("string"),
        F.lit("/r"),
        (room % _ROOMS + 1).cast("string"),
        F.lit("/"),
        F.get(names, F.col("device")),
    )


def _of_device(values: tuple[float, ...]) -> Column:
    return F.get(F.array(*[F.lit(float(value)) for value in values]), F.col("device"))


def _uniform(city: City, which: int) -> Column:
    """A uniform number from 0 to below 1 for each row. `which`: distinguishes the numbers of one row."""
    return _hashed(F.xxhash64("id", F.lit(city.seed), F.lit(which)))


def _hashed(value: Column) -> Column:
    return F.pmod(value, F.lit(1 << 30)) / float(1 << 30)


def _latencies() -> Column:
    """A bell curve over the logarithmic buckets. Its centre rises with the load of the node."""
    middle = 26 + 24 * F.col("busy") + F.col("noise")
    measured = F.col("messages_out") / _SAMPLED
    width = 3.0
    scale = width * math.sqrt(2 * math.pi)
    return F.transform(
        F.sequence(F.lit(0), F.lit(BUCKETS - 1)),
        lambda i: F.floor(measured / scale * F.exp(-((i - middle) ** 2) / (2 * width**2))),
    )
