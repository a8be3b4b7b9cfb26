"""The ledger: rows, timing, provenance, table."""
