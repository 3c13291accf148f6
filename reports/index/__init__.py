"""The index of a folder of runs: one table, complete as it is, that a script sorts and filters."""
