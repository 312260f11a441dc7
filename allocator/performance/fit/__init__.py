"""From observed speeds to speed models: linear least squares where a form is linear,
Gauss-Newton elsewhere.
"""
