"""One run, from its overrides to its record."""
