"""Reads the configuration of mosquitto (mosquitto.conf(5), version 2), and makes a topology file of it.

    conversion    a configuration -> the topology file, its other files, and what became of each line
    listeners     a section of a listener -> a listener of a gateway
    bridges       a section of a connection -> a bridge
    access        the files of passwords and access rules
    options       what becomes of the options that have one answer, whatever their value
    outcome       what became of a line
    conf_file     the text of the files -> sections with their lines

Imports go downward. Nothing is written here: `hbroker import` does that.
"""
