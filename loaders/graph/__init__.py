"""Graphs for training: synthetic ones, their files, and the sampling of batches."""
