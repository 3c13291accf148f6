"""Stands in for TensorFlow, which dlio-benchmark imports for a profiler that is off."""
