"""The report: one page that opens anywhere, offline, and shows where the load sits.

`sections` says what is shown, in which order; `spread`, `places` and `service` in which words; `charts`
draws; `markup` escapes; `page` puts it together with its style and script inlined. A section is a value, so
one that another part of the analysis makes (a plan beside what was measured) is handed to `page` as one more.
"""

from .page import Section, page
from .plan import plan as plan_section

__all__ = ["Section", "page", "plan_section"]
