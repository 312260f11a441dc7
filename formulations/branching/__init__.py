"""Branch and bound over the columns that a better plan may use, by the dual simplex method."""
