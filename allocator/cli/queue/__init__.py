"""Commands about a queue and its controller."""
