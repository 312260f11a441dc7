"""Changes of the input that would help one job, each verified by deciding the changed input again.

- change.py defines a change.
- trials.py decides changed inputs as the user's command does, and counts the decisions.
- limits.py lists the possible changes, the most promising first.
- search.py finds the smallest change of each kind that helps.
- start.py estimates when a waiting job starts.
- summary.py states the result in plain words.
"""

from __future__ import annotations

from allocator.engine.advice.change import VerifiedChange as VerifiedChange
