"""MLPerf Storage: what it publishes of the jobs that are run here, and its rules."""
