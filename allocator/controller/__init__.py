"""The controller of a cluster.

It decides a plan for a durable queue in every interval, and executors carry the plan out.
"""
