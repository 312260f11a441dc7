"""Plans from prices: rounding, moves, and restricted problems."""
