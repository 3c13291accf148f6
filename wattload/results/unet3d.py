"""The results of training on the records of MLPerf Storage's unet3d."""

from __future__ import annotations

from wattload.results.training.results import training_results

RESULTS = training_results("unet3d", "Unet3D")
