"""The durable queue, in one database.

It keeps jobs, pools, tenants, allocations, observations and the journal of rounds.
"""
