"""Graph training that gathers its features from drives."""
