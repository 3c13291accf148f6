"""The host a run is on: what it is, how busy it is, what software runs, and its processes."""
