"""The run record: one frozen, versioned JSON document per run."""
