"""Writes the load of a node or gateway: traffic by topic, and what it cost (docs/telemetry.md).

The native core counts by topic, under locks that it holds anyway. Once per interval a thread of this package
takes the counts as columns, and after some intervals it writes a file. The event loop only signals the end of
an interval, with the facts that the decisions know. So no message waits for a lock or a disk of telemetry.

    recorder       the thread: takes the counts at the end of each interval
    journal        collects intervals, and writes files of them
    rows           the columns, the contract with their readers, and intervals as tables of them
    file_archive   files that appear whole, and are deleted when they are too old or too many
    hottest_topics the topics with the most messages in the last seconds
    interval       when an interval was, what it cost, and what the decisions know at its end

Imports go downward: `recorder` imports `journal` when its thread starts, which imports `rows` and
`file_archive`. Nothing loads Arrow before `preload`, or that thread, does.
"""

from hbroker.runtime.telemetry.interval import Facts
from hbroker.runtime.telemetry.recorder import Recorder, preload

__all__ = ["Facts", "Recorder", "preload"]
