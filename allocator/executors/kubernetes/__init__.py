"""Allocations as Jobs of Kubernetes."""
