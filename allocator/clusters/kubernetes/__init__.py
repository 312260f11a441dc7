"""Kubernetes and Kueue: objects as tables of a snapshot, and plans as documents for kubectl."""
