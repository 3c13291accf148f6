"""What every test stands on."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# Whoever starts the tests in the background of a script leaves Ctrl-C ignored, and so would every
# process that a test starts: programs would then never see the interrupts that tests send them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's affair and fails no test.
settings.register_profile("any", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any")
