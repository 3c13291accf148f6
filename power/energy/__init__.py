"""From samples to energy records: traces, power over time, windows, uncertainty, the ledger."""
