"""Returns something that is no answer."""


def solve(model, limits, hint, report):
    return {"values": [1.0] * model.n}
