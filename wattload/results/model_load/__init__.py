"""The results of loading a model."""
