"""Which runs one command makes, and in which order.

Sweeps, interleaved arms, the accelerator search, and the journal from which an interrupted session
resumes.
"""
