"""MLPerf Storage: its editions, results in the form they are published in, formulas and rules."""
