"""The sizes of a job that lists none: powers of two inside a node, then whole nodes.

Every number of nodes is a size up to EVERY_NODES. Above, a size is a number of nodes of at most
NODE_DIGITS significant binary digits: neighbours differ by less than 0.8 %, and a job of a pool of
10,000,000 nodes has 2,816 sizes. Whole nodes that the job names itself (`min_gpus` rounded up,
`max_gpus` rounded down, `requested_gpus`) and those at which its model was measured are sizes too.
"""

import numpy as np

from allocator.domain.problem import Ints, Problem
from allocator.domain.schema.columns import MOST_GPUS
from formulations.model.linear import ragged

EVERY_NODES = 1_024
NODE_DIGITS = 8


def sizes_by_rule(gpus_per_node: int, largest: int) -> Ints:
    """Return the sizes of the rule, none above `largest`, ascending."""
    inside = 2 ** np.arange(int(gpus_per_node).bit_length(), dtype=np.int64)
    nodes = np.arange(1, min(largest // gpus_per_node, EVERY_NODES) + 1)
    if largest > EVERY_NODES * gpus_per_node:
        digits = np.arange(2 ** (NODE_DIGITS - 1), 2**NODE_DIGITS)
        zeros = np.arange(MOST_GPUS.bit_length() - NODE_DIGITS + 1)
        nodes = np.append(nodes, digits << zeros[:, None])
    sizes = np.union1d(inside[inside <= gpus_per_node], nodes * gpus_per_node)
    return sizes[sizes <= largest]


def sizes_of_pods(pod: int, low: int, high: int, requested: int) -> tuple[int, ...]:
    """Return the sizes from `low` to `high` of a job with pods of `pod` GPUs that lists no sizes.

    The numbers of pods are those of `sizes_by_rule` for nodes of one GPU. The smallest and the
    largest number of whole pods, and the one that the job asks for, are always among them.
    """
    pods = np.union1d(
        sizes_by_rule(1, high // pod), (-(-low // pod), high // pod, requested // pod)
    )
    return tuple((pods[pods * pod >= low] * pod).tolist())


def named_sizes(problem: Problem, able: Ints, pool: int) -> tuple[Ints, Ints]:
    """Return (i, gpus): whole nodes that job able[i] names, or at which its model was measured.

    The pool says what a node is, and which GPU type was measured. Jobs with `sizes` have none.
    """
    jobs = problem.jobs
    rates = problem.rates
    node = int(problem.pools.gpus_per_node[pool])
    here = rates.gpu_type == problem.pools.gpu_type[pool]
    model, measured = np.unique((rates.model[here], rates.gpus[here]), axis=1)
    i = np.flatnonzero(jobs.sizes[able] < 0)
    j = able[i]
    begin, end = (np.searchsorted(model, jobs.model[j], side) for side in ("left", "right"))
    of, row = ragged(begin, end)
    rounded = -(-jobs.min_gpus[j] // node) * node, jobs.max_gpus[j] // node * node
    gpus = np.concatenate([*rounded, jobs.requested_gpus[j], measured[row]])
    whole = gpus % node == 0
    return np.concatenate([i, i, i, i[of]])[whole], gpus[whole]
