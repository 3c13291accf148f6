"""NVMe bytes: commands out, frozen fields in; decoding apart from the ioctl that fetches."""
