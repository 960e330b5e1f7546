"""The dashboard in a real browser, headless Chromium.

browser         the browser and its pages
stand_in        an API without a network, which is told what nodes say
test_files      how the files are served
test_views      the views, with a real network
test_many_nodes the tree of a thousand nodes, and of nodes that lie
test_connection an API that goes away, and comes back
"""
