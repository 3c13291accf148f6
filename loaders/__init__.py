"""How bytes move between target and memory: engines, loaders, file formats and data generation."""
