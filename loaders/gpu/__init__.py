"""The process that reads into GPU memory."""
