"""The durable queue: jobs, pools, tenants, allocations, observations and the journal of rounds
in one database.
"""
