"""Statistics of the runs of a page.

Their groups and arms, what may be compared, effects with their intervals, and what is called.
"""
