"""What a node or gateway writes of its load: how much passed where, and what it cost (docs/telemetry.md).

The core counts, by topic, under the locks that it holds anyway. Once in an interval a thread of this package
takes what was counted, as columns, and every few of them it writes a file. The event loop only says when, and
what the decisions know. So nothing of it is on the way of a message: not a lock, not a disk.

    recorder    the thread: says that an interval is over, and hands on what was counted
    journal     gathers intervals, and writes files of them
    watch       when an interval was, and what it cost
    facts       what the decisions know
    rows        intervals -> tables of Arrow
    schema      their columns, which are the contract with whoever reads
    shelf       files that are whole or not there, and an end to how many there are

Nothing here loads Arrow before `preload`, or a recorder's thread, does.
"""

from hbroker.runtime.telemetry.facts import Facts
from hbroker.runtime.telemetry.recorder import Recorder, preload

__all__ = ["Facts", "Recorder", "preload"]
