"""The mathematics of allocation over arrays: models, objectives, bounds, and plans."""
