"""Default gap and time limit of a decision.

GAP is the relative gap that a plan is proven within. It is the default of every command that
decides, of `allocator.solve`, `allocator.Rounds`, the simulator, the benchmarks of policies and the
controller. A thousandth is far below the uncertainty of speeds and sizes, and proving ten times
more can take a hundred times as long (docs/results.md).

TIME_LIMIT_S is the number of seconds for one decision of `allocator solve`, a batch, `explain` and
`whatif`. The controller takes half of its interval. `simulate`, `bench policies` and the Python
calls have no limit, because a program that must always find the same plan must not depend on the
speed of a machine.
"""

from __future__ import annotations

GAP = 1e-3
TIME_LIMIT_S = 60.0
