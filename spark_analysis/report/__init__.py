"""The report: one page that works offline in any browser, and shows the distribution of the load.

    page                     the page, with its style and script inlined
    sections                 which sections there are, and their order
    spread, places, service  sections: nodes over time; subtrees and topics; latency, drops, cost
    plan                     the section of the plan
    icicle                   the layout of an icicle
    charts, timeline         charts as SVG; the time axis that all of them share
    rows                     a section as a value; rows of small tables, and HTML tables
    markup                   HTML with every text escaped; formats of numbers

Each module imports only modules below it in this list. A section is a value: another part of the analysis can
give one to `page`.
"""

from .page import page
from .plan import plan as plan_section
from .rows import Section

__all__ = ["Section", "page", "plan_section"]
