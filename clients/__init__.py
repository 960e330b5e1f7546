"""The commands hpub and hsub: the flags of mosquitto_pub and mosquitto_sub, over hbroker's public API.

    hpub, hsub    the two programs
    console       runs a program: output, errors, exit codes
    sessions      `-c`, `-x` and the flags of the will
    options       the other flags that both programs have, and the root's address
    payloads      the sources of hpub's messages
    properties    `-D`: properties of MQTT 5
    formatting    how hsub prints a message
    json_output   a message as JSON (`%j`, `%J`)
    received      a message that hsub has received
    flags         reads a command line as mosquitto's programs do

Each module imports only modules below it in this list. `hbroker.sync` is imported after the command line was
checked, because it takes time to load.
"""
