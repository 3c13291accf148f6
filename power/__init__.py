"""What is known of power: NVMe bytes to fields, sources, the sampler process, energy."""
