"""The search for the most emulated accelerators that hold their utilisation."""
