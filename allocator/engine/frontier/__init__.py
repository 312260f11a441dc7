"""Time against cost: of one job, of several, and of a whole round."""
