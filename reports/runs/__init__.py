"""Single runs.

Records and traces read from disk, masked, checked for consistency, and converted to one clock and
to joules.
"""
