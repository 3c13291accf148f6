"""What pages and terminals show of model loading."""

from __future__ import annotations

from wattload.results.model_load.facts import LoadFacts
from wattload.results.view import View

VIEW: View[LoadFacts] = View()
