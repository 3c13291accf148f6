"""The results of random reads that requesters ask for: those of ``gpu_read`` in another view."""

from __future__ import annotations

from dataclasses import replace

from wattload.results.gpu_read.facts import BY_REQUESTERS
from wattload.results.gpu_read.requesters import VIEW
from wattload.results.gpu_read.results import RESULTS as OF_THREADS

RESULTS = replace(OF_THREADS, name=BY_REQUESTERS, view=VIEW)
