"""The commands, one module each: they parse a command line and print.

A module is imported when its command runs.
"""
