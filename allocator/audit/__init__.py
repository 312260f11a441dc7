"""The independent witness: checks every plan, whoever made it, from the problem alone, before it
leaves.
"""

from allocator.audit.check import Audit, audit

__all__ = ["Audit", "audit"]
