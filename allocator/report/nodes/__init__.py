"""Pictures of nodes: of a plan, and of a simulation."""
