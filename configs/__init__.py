"""Hydra groups: values only, no code."""
