"""Commands about clusters that others run."""
