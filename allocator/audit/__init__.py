"""The independent audit: it checks every plan against the problem alone before the plan leaves."""

from allocator.audit.check import Audit, audit

__all__ = ["Audit", "audit"]
