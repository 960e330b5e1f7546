"""The telemetry files that nodes write: what the core counted (`test_journal`), the archive
(`test_file_archive`), what readers expect (`test_contract`), and a real network (`test_network`). `reading`
reads them."""
