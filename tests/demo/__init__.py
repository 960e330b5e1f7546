"""The demo: a short run with real nodes, and the texts in which it reports."""
