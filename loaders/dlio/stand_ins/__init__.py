"""Packages that dlio-benchmark imports and unet3d does not need; found by its processes alone."""
