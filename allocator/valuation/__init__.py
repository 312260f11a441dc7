"""The values of options: a round as facts for objectives, and the reward for exploring."""

from allocator.valuation.values import bound_rounding, build_context, option_values, requested_rate
from formulations.objectives.context import Offer

__all__ = ["Offer", "bound_rounding", "build_context", "option_values", "requested_rate"]
