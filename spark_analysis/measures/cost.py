"""The CPU time that a message costs at each node, by linear regression.

The model, for each interval of a node, with rates per second:

    cpu = base + in_cost * messages_in + out_cost * messages_out

One regression fits all nodes. Each value is centred by its node's mean, which removes the base (theorem of
Frisch, Waugh and Lovell). Each node has two features, its rates, which are zero in the rows of all other
nodes. The normal equations of such a matrix are block diagonal. So the coefficients are those of a separate
fit for each node, with one pass over the data instead of one for each node. The base follows from the means.

If a node's copies are always in the same proportion to its messages, the two rates are collinear. A very weak
ridge penalty then divides the cost between them, with the right sum.
"""

from __future__ import annotations

import json
from typing import Final

from pyspark.ml.feature import Interaction, OneHotEncoder, StringIndexer, VectorAssembler
from pyspark.ml.regression import LinearRegression, LinearRegressionModel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, StringType, StructField, StructType

FEWEST_INTERVALS: Final = 10
"""A node with fewer intervals is not fitted."""

_AT_ONCE: Final = 1_000
"""Nodes in each regression. It has twice this number of features, and their normal equations fit into the
driver's memory."""

_RIDGE: Final = 1e-9
_STILL: Final = 1e-12
"""CPU seconds per second: a standard deviation below this is due to rounding."""
_ROUNDING: Final = 1e-6
"""CPU seconds per second: a negative base above minus this counts as 0."""

SIGNIFICANT: Final = 0.01
"""The significance level: the largest probability that messages without any cost would explain as much of the
CPU time by chance."""

_RATES: Final = ("in_rate", "out_rate")
_KEY: Final = "key"
_COEFFICIENTS: Final = StructType(
    [
        StructField(_KEY, StringType()),
        StructField("in_cost", DoubleType()),
        StructField("out_cost", DoubleType()),
    ]
)


def costs(nodes: DataFrame) -> DataFrame:
    """The cost at each node. `nodes`: interval rows.

    `base_cpu`: CPU seconds per second without messages. `in_us`, `out_us`: CPU microseconds of a message
    taken in, and of a copy sent. `r2`: the share of the CPU time's variance that the fit explains.
    `error_cpu`: the root mean square of the residuals. A node has nulls if it has too few intervals, or if
    its load or CPU time never changed. The first three are also null if the fit is not `SIGNIFICANT`, or if
    one of them is negative: no cost is negative, so the fit is noise.
    """
    centred = _centred(_rates(nodes))
    reported = centred.where(F.col("is_told"))
    keys = [row[_KEY] for row in reported.select(_KEY).distinct().orderBy(_KEY).collect()]
    starts = range(0, len(keys), _AT_ONCE)
    fitted = [cost for start in starts for cost in _fit(reported, keys[start : start + _AT_ONCE])]
    return _judged(centred, _frame(nodes.sparkSession, fitted))


def _rates(nodes: DataFrame) -> DataFrame:
    per_second = {"in_rate": "messages_in", "out_rate": "messages_out", "cpu_rate": "cpu_s"}
    rates = [F.try_divide(source, "seconds").alias(name) for name, source in per_second.items()]
    key = F.concat_ws("\n", "role", "node").alias(_KEY)
    return nodes.where(F.col("seconds") > 0).select("role", "node", key, *rates)


def _centred(rates: DataFrame) -> DataFrame:
    """Each rate less its node's mean, with that mean, which is broadcast, so that no row is shuffled."""
    names = (*_RATES, "cpu_rate")
    varies = (F.stddev_pop("in_rate") > 0) | (F.stddev_pop("out_rate") > 0)
    costs = F.stddev_pop("cpu_rate") > _STILL
    enough = F.count(F.lit(1)) >= FEWEST_INTERVALS
    means = rates.groupBy(_KEY).agg(
        *[F.avg(name).alias(f"{name}_mean") for name in names], (enough & varies & costs).alias("is_told")
    )
    distances = [(F.col(name) - F.col(f"{name}_mean")).alias(f"{name}_off") for name in names]
    return rates.join(F.broadcast(means), on=_KEY, how="inner").select("*", *distances)


def _fit(reported: DataFrame, keys: list[str]) -> list[tuple[str, float, float]]:
    """The coefficients of these nodes, by one regression with two features for each node."""
    rows = reported.where(F.col(_KEY).isin(keys))
    indexer = StringIndexer(inputCol=_KEY, outputCol="index", stringOrderType="alphabetAsc").fit(rows)
    indexed = indexer.transform(rows)
    encoder = OneHotEncoder(inputCol="index", outputCol="is_node", dropLast=False).fit(indexed)
    rates = VectorAssembler(inputCols=[f"{name}_off" for name in _RATES], outputCol="rates")
    blocks = Interaction(inputCols=["is_node", "rates"], outputCol="features")
    features = blocks.transform(rates.transform(encoder.transform(indexed)))
    regression = LinearRegression(
        labelCol="cpu_rate_off", fitIntercept=False, solver="normal", regParam=_RIDGE, elasticNetParam=0.0
    )
    model: LinearRegressionModel = regression.fit(features)
    found = [float(value) for value in model.coefficients.toArray()]
    return [(key, found[2 * i], found[2 * i + 1]) for i, key in enumerate(indexer.labels)]


def _frame(spark: SparkSession, coefficients: list[tuple[str, float, float]]) -> DataFrame:
    """The coefficients as one literal: a DataFrame from a Python list would need Python on an executor."""
    rows = json.dumps([dict(zip(_COEFFICIENTS.names, row, strict=True)) for row in coefficients])
    return spark.range(1).select(F.inline(F.from_json(F.lit(rows), ArrayType(_COEFFICIENTS))))


def _judged(centred: DataFrame, fitted: DataFrame) -> DataFrame:
    """Coefficients in their units, the base from the means, and the quality of the fit."""
    rows = centred.join(F.broadcast(fitted), on=_KEY, how="left")
    explained = F.col("in_cost") * F.col("in_rate_off") + F.col("out_cost") * F.col("out_rate_off")
    left_over = F.sum((F.col("cpu_rate_off") - explained) ** 2)
    unexplained = F.try_divide(left_over, F.sum(F.col("cpu_rate_off") ** 2))
    fits = rows.groupBy("role", "node").agg(
        F.count(F.lit(1)).alias("intervals"),
        (F.first("cpu_rate_mean") - _at_means()).alias("base"),
        *[F.first(name).alias(name) for name in ("in_cost", "out_cost")],
        (1 - unexplained).alias("r2"),
        F.sqrt(left_over / F.count(F.lit(1))).alias("error_cpu"),
    )
    costs = {"base_cpu": ("base", 1.0), "in_us": ("in_cost", 1e6), "out_us": ("out_cost", 1e6)}
    reported = [
        F.when(_is_told(), F.greatest(F.col(source), F.lit(0.0)) * unit).alias(name)
        for name, (source, unit) in costs.items()
    ]
    return fits.select("role", "node", "intervals", *reported, "r2", "error_cpu")


def _is_told() -> Column:
    """Whether costs are reported: the fit is significant, and no cost is negative.

    The probability that two rates without influence explain as much is that of the F distribution with 2 and
    n - 3 degrees of freedom. It has the closed form (1 - r2) ^ ((n - 3) / 2).
    """
    chance = F.pow(1 - F.col("r2"), (F.col("intervals") - 3) / 2)
    negative = [F.col(name) < -_STILL for name in ("in_cost", "out_cost")]
    return (chance <= SIGNIFICANT) & (F.col("base") >= -_ROUNDING) & ~negative[0] & ~negative[1]


def _at_means() -> Column:
    """The CPU time of the messages at their mean rates."""
    parts = [F.first(f"{side}_cost") * F.first(f"{side}_rate_mean") for side in ("in", "out")]
    return parts[0] + parts[1]
