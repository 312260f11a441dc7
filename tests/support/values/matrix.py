"""The matrix of features: importing this puts all of them on the list `FEATURES`.

matrix_rounds.py says what a feature is, and has the rounds; test_value_matrix.py crosses features
with all objectives, and fails for a column of the input that no feature names.
"""

import matrix_cluster
import matrix_jobs
import matrix_rules
from matrix_rounds import BASE, CROSSED, EVERY, FEATURES, Tables, base, made, schema

PARTS = (matrix_jobs, matrix_cluster, matrix_rules)
__all__ = ["BASE", "CROSSED", "EVERY", "FEATURES", "PARTS", "Tables", "base", "made", "schema"]
