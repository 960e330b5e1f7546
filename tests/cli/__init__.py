"""The commands of `hbroker`: command lines and completion, output and exit codes, tables and progress, the
drawing of a tree, invalid files of gateways, alerts."""
