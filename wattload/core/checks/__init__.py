"""The checks of a finished run: each compares two sides that different counters kept."""
