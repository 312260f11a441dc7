"""The controller of a cluster: a durable queue, a decision every interval, executors that carry
it out.
"""
