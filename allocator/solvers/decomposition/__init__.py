"""The decomposition: prices for coupling rows, a small exact rest."""
