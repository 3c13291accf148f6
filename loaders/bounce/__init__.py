"""Reads into GPU memory through pinned host memory."""
