"""DLRM preprocessing: Criteo click logs from TSV to Parquet, and from Parquet to packed binary."""

from wattload.workloads.dlrm.config import Config
from wattload.workloads.dlrm.workload import Dlrm

__all__ = ["Config", "Dlrm"]
