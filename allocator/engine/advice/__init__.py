"""What would help one job: changes of the input, each verified by deciding the changed input again.

change.py says what a change is; trials.py decides changed inputs as the user's command does, and
counts; limits.py knows which changes there are and in which order; search.py finds the smallest of
each kind that helps.
"""

from __future__ import annotations

from allocator.engine.advice.change import VerifiedChange as VerifiedChange
