"""The PuLP back end where CBC is not to be had."""

from allocator.solvers import pulp_reference

pulp_reference.PREFERRED = ()
version, solve = pulp_reference.version, pulp_reference.solve
