"""What options are worth: a round as facts for objectives, and the reward for exploring."""

from allocator.valuation.values import context_of, option_values, rounding
from formulations.objectives.context import Offer

__all__ = ["Offer", "context_of", "option_values", "rounding"]
