"""Types, units, errors, storage, the host and the run record: imports nothing else of ours."""
