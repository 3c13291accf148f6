"""The checks that only a dlrm run can make, and the figures that they need."""

from __future__ import annotations

from wattload.core.checks.declared import DeclaredCheck, Figures
from wattload.loaders.data.cold_cache import is_cold
from wattload.loaders.data.digests import are_unchanged


def are_rows_kept(figures: Figures) -> bool:
    """Return whether every line became one Parquet row and one packed row."""
    counts = ("line_count", "parquet_row_count", "packed_row_count")
    found = {figures[name] for name in counts}
    # Before version 3, lines were counted by the converter only.
    return found == {figures.get("day_line_count", figures["line_count"])}


def is_content_equal(figures: Figures) -> bool:
    """Return whether all files have the bytes that moved."""
    return figures["different_count"] == 0


def is_sample_equal(figures: Figures) -> bool:
    """Return whether rows were compared and none differs, by count and by hash."""
    is_same = figures["expected_sha256"] == figures["found_sha256"]
    return is_same and bool(figures["compared_count"]) and not figures["different_count"]


def is_read_whole(figures: Figures) -> bool:
    """Return whether the day files were read once in each round."""
    wanted = float(figures["file_bytes"] or 0) * float(figures["rounds"] or 0)
    return figures["read_bytes"] == wanted


CHECKS = {
    "cold_cache_tsv_to_parquet": DeclaredCheck(since=1, holds=is_cold),
    "cold_cache_parquet_to_binary": DeclaredCheck(since=1, holds=is_cold),
    "written_extents": DeclaredCheck(since=3, optional=True),
    "data_digests": DeclaredCheck(since=3, holds=are_unchanged),
    "dlrm_content": DeclaredCheck(since=3, holds=is_content_equal),
    "dlrm_rows": DeclaredCheck(since=1, holds=are_rows_kept),
    "dlrm_sample": DeclaredCheck(since=1, holds=is_sample_equal),
    "dlrm_tsv_bytes": DeclaredCheck(since=1, holds=is_read_whole),
}
