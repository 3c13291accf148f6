from __future__ import annotations

from kvikio import _note

set = _note
