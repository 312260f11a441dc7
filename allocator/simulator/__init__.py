"""Trace-driven simulation: a cluster behind the controller's port, run as fast as possible."""

from allocator.simulator.options import SimulationOptions
from allocator.simulator.run import Simulation, simulate

__all__ = ["Simulation", "SimulationOptions", "simulate"]
