"""Model loading: from a cold drive to the last tensor."""
