"""Types, units, errors, clock, targets and the run record: imports nothing else of ours."""
