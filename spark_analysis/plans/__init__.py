"""From measured loads to a plan of how to delegate.

    delegation    what the planner needs of the tables, and its plan as a table
    planning      the planner: a pure function of numbers, without Spark

`delegation` imports `planning`.
"""
