"""A virtual drive: an NVMe/TCP controller that knows, to the joule, what it has used.

The kernel's own nvme-tcp driver makes ``/dev/nvmeX`` of it. It packs its bytes by its own reading
of the specification and keeps its own account of energy; nothing here imports what it judges.
"""
