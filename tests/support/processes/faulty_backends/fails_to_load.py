"""Cannot be loaded."""

raise ImportError("libsolver.so.7 is missing")
