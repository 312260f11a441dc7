"""Which nodes tasks run on: the state of nodes, demand, placement rules, and their engine."""
