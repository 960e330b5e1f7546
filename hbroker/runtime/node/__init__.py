"""A node's process: the core, the control, and the files that it keeps."""
