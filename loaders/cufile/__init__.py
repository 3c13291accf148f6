"""Reads into GPU memory by cuFile."""
