"""Commands about one decision."""
