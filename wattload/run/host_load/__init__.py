"""The load that keeps a host busy during a run: its process, its settling, and its levels."""
