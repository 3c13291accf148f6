"""A drive's power settings: changing them, the journal of changes, undo and crash recovery."""
