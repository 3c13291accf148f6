"""Storage as the kernel shows it: targets, mounts, block stacks, NVMe controllers, direct I/O."""
