"""The results of training on the records of MLPerf Storage's retinanet."""

from __future__ import annotations

from wattload.results.training.results import training_results

RESULTS = training_results("retinanet", "RetinaNet")
"""The results of training on whole records, with emulated accelerators."""
