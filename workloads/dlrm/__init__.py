"""DLRM preprocessing: Criteo click logs from TSV to Parquet, and from Parquet to packed binary."""
