"""Random writes over a whole drive or one file, until it is full or in a steady state."""
