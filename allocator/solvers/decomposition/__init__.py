"""The decomposition: prices for coupling rows, and a small exact search for the rest."""
