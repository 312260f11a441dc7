"""Charts of simulations, rounds and models."""
