"""Files that survive a kill, a full disk, a loss of power: one file of records (`test_record_file`), and the
store that writes records in groups (`test_store`)."""
