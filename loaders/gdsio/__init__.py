"""NVIDIA's gdsio, which reads into GPU memory by itself."""
