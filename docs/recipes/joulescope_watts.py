#!/usr/bin/env python3
"""Print the watts that a Joulescope JS220 measures: pip install joulescope."""

import time

import joulescope

with joulescope.scan_require_one(config="auto") as meter:
    meter.parameter_set("reduction_frequency", "10 Hz")
    meter.statistics_callback_register(
        lambda found: print(found["signals"]["power"]["µ"]["value"], flush=True)
    )
    while True:
        time.sleep(1)
