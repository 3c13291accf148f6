"""A trace that was recorded elsewhere: its format, and how its times become this host's."""
