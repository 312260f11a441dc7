"""Upper bounds without a solver: Lagrangian prices, smoothing."""
