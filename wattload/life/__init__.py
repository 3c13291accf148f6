"""The parts of a run's life that ``wattload.run`` strings together."""
