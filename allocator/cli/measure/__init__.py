"""Commands that simulate, measure and report."""
