"""Writes the JSON Schema of a run's record: what ``make docs`` runs."""

from __future__ import annotations

import json
from pathlib import Path

from wattload.core.record.run import RunRecord

PUBLISHED = Path(__file__).resolve().parents[1] / "docs/record.schema.json"

if __name__ == "__main__":
    schema = RunRecord.model_json_schema(mode="serialization")
    PUBLISHED.write_text(json.dumps(schema, indent=1, ensure_ascii=False) + "\n", "utf-8")
