"""A round as a linear model: its arrays, its rows, and its options."""
