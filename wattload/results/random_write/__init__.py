"""The results of random writes: facts, figures, checks, and how they are shown."""
