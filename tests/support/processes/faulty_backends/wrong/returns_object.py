"""Returns something that is no answer."""


def solve(model, *_):
    return {"values": [1.0] * model.n}
