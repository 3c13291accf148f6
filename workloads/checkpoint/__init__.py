"""checkpoint: the shards of a Llama-3 model, saved, loaded and verified."""
