"""Criteo click logs: the day files' TSV, their Parquet form, and DLRM's packed binary rows."""
