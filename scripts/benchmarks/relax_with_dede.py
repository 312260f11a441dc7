"""Solve the relaxation of the round in a folder with DeDe; bench_decomposition.py calls this."""

import itertools
import sys
import time

import dede
import numpy as np
import ray

folder = sys.argv[1]
model = np.load(f"{folder}/round.npz")
x = dede.Variable(len(model["value"]), nonneg=True)
resources = [
    model["data"][a:b] @ x[model["column"][a:b]] <= high
    for (a, b), high in zip(itertools.pairwise(model["indptr"]), model["high"], strict=True)
]
jobs = [slice(a, b) for a, b in itertools.pairwise(model["start"]) if a < b]
value = sum(model["value"][job] @ x[job] for job in jobs)
problem = dede.Problem(dede.Maximize(value), resources, [dede.sum(x[job]) <= 1 for job in jobs])
problem.solve(num_cpus=2, num_iter=0, solver=dede.ECOS)  # starts its processes
begin = time.monotonic()
problem.solve(num_cpus=2, solver=dede.ECOS)
end = time.monotonic()
actors = problem._subprob_cache.probs  # it has no other way to the solution
places = itertools.chain(*ray.get([actor.get_solution_idx_d.remote() for actor in actors]))
share = np.zeros(x.size)
for (variable, place), amount in zip(places, problem.sol_d, strict=True):
    if variable == x.id:
        share[place] = amount
np.savez(f"{folder}/answer.npz", share=share, seconds=end - begin)
