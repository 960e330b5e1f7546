"""Results of the contest as pages, tables, goals and charts.

    standings    writes `docs/benchmarks.md` and the charts
    report       tables in Markdown
    goals        which goals are reached
    chart        SVG

`standings` imports the others.
"""
