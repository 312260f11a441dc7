"""Trace-driven simulation: a cluster behind the controller's ports, in which time passes as fast
as it can.
"""

from allocator.simulator.options import SimulationOptions
from allocator.simulator.run import Simulation, simulate

__all__ = ["Simulation", "SimulationOptions", "simulate"]
