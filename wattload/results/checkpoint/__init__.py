"""Checkpoints of a training job, written and read back."""
