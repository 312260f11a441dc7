"""A plan as documents and commands for Kubernetes."""
