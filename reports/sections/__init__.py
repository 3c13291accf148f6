"""The sections of a page: functions from runs to blocks; ``None`` leaves a section out."""
