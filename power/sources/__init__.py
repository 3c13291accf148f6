"""Power sources, one module per meter: each yields samples with the facts of its sensor."""
