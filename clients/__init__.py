"""The commands hpub and hsub: the flags of mosquitto_pub and mosquitto_sub, over hbroker's public API.

    hpub, hsub    the two programs
    console       runs a program: command line, output, errors, exit codes
    sessions      `-c`, `-x` and the flags of the will; the arguments of `connect`
    payloads      the sources of hpub's messages
    properties    `-D`: properties of MQTT 5
    options       the other flags that both programs have, and the root's address
    formatting    how hsub prints a message
    json_output   a message as JSON (`%j`, `%J`)
    received      a message that hsub has received
    flags         a flag, and the values of a command line

Each module imports only modules below it in this list. `hbroker.sync` is imported after the command line was
checked, because it takes time to load.

click declares the flags, checks their values, prints the help and completes a line for the shell. It does not
read the command line, because it reads as getopt does: `-vd` is `-v -d`, `-mfoo` is `-m foo`, and the values
are checked after the whole line was read. Scripts for mosquitto's programs rely on mosquitto's rules
(console).
"""
