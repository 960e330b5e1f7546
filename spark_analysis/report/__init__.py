"""The report: one page that works offline in any browser, and shows the distribution of the load.

    page                     the page, with its style and script inlined; `Section`
    sections                 which sections there are, and their order
    spread, places, service  sections: nodes over time; subtrees and topics; latency, drops, cost
    plan                     the section of the plan
    charts, icicle           charts as SVG; the layout of an icicle
    over_time, timeline      lines over time; the time axis that all charts share
    rows                     rows of small tables, and HTML tables
    markup                   HTML with every text escaped; formats of numbers

Imports go downwards in this list, except that `page` imports `sections` when it runs, and the sections import
`Section` of `page`. A section is a value: another part of the analysis can give one to `page`.
"""

from .page import page
from .plan import plan as plan_section
from .section import Section

__all__ = ["Section", "page", "plan_section"]
