"""`hbroker top`: a network in a terminal, live (the extra `top`: Textual).

    top     the command
    app     the application: tabs, keys, and what they show
    rows    the rows of its tables, from what nodes say

`top` imports `app`, which imports `rows`.
"""
