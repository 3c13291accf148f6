"""A package of its own: some distributions install one of this name, which would go first."""
