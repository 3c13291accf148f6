"""The sampler: a process of its own that reads power beside a run and undoes what the run set."""
