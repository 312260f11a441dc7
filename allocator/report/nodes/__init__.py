"""Pictures of nodes: which job has which GPUs, and how much is free and of no use."""
