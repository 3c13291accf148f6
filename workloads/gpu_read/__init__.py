"""Random reads into GPU memory."""
