"""Fits of speed models to observed speeds.

Forms that are linear are fitted by linear least squares, the others by Gauss-Newton.
"""
