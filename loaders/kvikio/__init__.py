"""Reads into GPU memory by KvikIO."""
