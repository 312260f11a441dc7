"""Back ends of solvers that fail in one way each: `faulty_backends.NAME` is the module NAME of this
folder (those that end), of `stalling` or of `wrong`.
"""

from pathlib import Path

_HERE = Path(__file__).resolve().parent
__path__ = [str(_HERE), str(_HERE / "stalling"), str(_HERE / "wrong")]
