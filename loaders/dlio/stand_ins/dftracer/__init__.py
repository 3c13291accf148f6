"""Stands in for pydftracer, without which dlio-benchmark 2.0.0 fails: its own fallback is wrong."""
