"""The command `hbroker store`.

    store     the command: its actions and flags
    show      `info` and `verify`
    rewrite   `compact` and `merge`
    tables    `export` and `import`

`store` imports the module of an action when it runs. `rewrite` and `tables` import `show`.
"""
