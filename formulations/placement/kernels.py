"""The loops of the placement engine, node by node; numba compiles them where it is installed.

The arguments are tuples of arrays, so that every function takes few of them:

    nodes   gpus (N, G), cpus (N,), memory_gb (N,), sizes (N,), kind (N,)        of a NodeState
    tasks   gpus (T,), share (T,), cpus (T,), memory_gb (T,), allowed (T, K)     of a Demand
    rule    number of the rule, scale (3,), levels, typical tasks, weights of the typical tasks,
            value of a free share (N, M + 1)
    scores  score (T, 2 P), gpu (T, N), scored up to (T,), changed nodes, last change (N,), changes

`scores` is what a class of tasks knows about every node. It is brought up to date when a task of
the class arrives, and only for the nodes that changed since the last one: `changed nodes` is a list
of them in time order, `scored up to` the place in this list that a class has read, and `last
change` the last place in this list of every node. The scores of a class are a tournament: that of
node n is at P + n (P a power of two, at least N), and at i < P is the lower one of 2 i and 2 i + 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

EPS = 1e-9  # GPUs, CPUs or GB that do not count
TIE = 1e-9  # scores that are nearer than this are equal
BEST_FIT, RANDOM, PACKING, DOT_PRODUCT, FGD, VALUE = range(6)
NEXT = 8  # tasks of the workload of which one should be able to use what a node has left
LOST = 0.05  # value of a GPU that no task can use, on top of its price
NAMES = (
    "fits",
    "tightest_gpu",
    "random_gpu",
    "score_best_fit",
    "score_packing",
    "score_dot_product",
    "fragmentation",
    "score_fgd",
    "unused_gpus",
    "value_of_node",
    "score_value",
    "score_node",
    "set_score",
    "update_scores",
    "pick_node",
    "put_on_gpus",
    "take_gpus",
    "mark_changed",
    "give_back_gpus",
    "best_two",
    "find_opening",
    "place_tasks",
)


def fits(free: Any, cpus: float, memory_gb: float, kind: int, tasks: Any, t: int) -> bool:
    """Return whether task t fits on a node whose GPUs are free to the shares `free` (G,)."""
    gpus, share, need_cpus, need_memory, allowed = tasks
    if cpus < need_cpus[t] - EPS or memory_gb < need_memory[t] - EPS or not allowed[t, kind]:
        return False
    missing = gpus[t]
    for g in range(len(free)):
        if missing <= 0:
            break
        if free[g] >= share[t] - EPS:
            missing -= 1
    return bool(missing <= 0)


def tightest_gpu(free: Any, share: float) -> int:
    """Return the GPU with the least free share that is enough, or -1."""
    best = -1
    for g in range(len(free)):
        if free[g] >= share - EPS and (best < 0 or free[g] < free[best] - EPS):
            best = g
    return best


def random_gpu(free: Any, share: float, draw: float) -> int:
    """Return one of the GPUs that have enough, by a random number in [0, 1)."""
    enough = 0
    for g in range(len(free)):
        if free[g] >= share - EPS:
            enough += 1
    skip = int(draw * enough)
    for g in range(len(free)):
        if free[g] >= share - EPS:
            if skip == 0:
                return g
            skip -= 1
    return -1


def score_best_fit(free: Any, cpus: float, scale: Any, levels: int, tasks: Any, t: int) -> float:
    """Return what a node would have left, as shares of the largest node."""
    left = scale[0] * (free.sum() - tasks[0][t] * tasks[1][t])
    if scale[1] > 0:
        left += scale[1] * (cpus - tasks[2][t])
    return float(left / 2 if levels == 0 else -math.floor(levels * (1 - left / 2) + EPS))


def score_packing(free: Any, size: int, tasks: Any, t: int) -> float:
    """Return the published score of packing: GPUs in use, then nodes in use, then small nodes."""
    if tasks[0][t] == 0:
        return 0.0
    whole = 0
    for g in range(len(free)):
        if free[g] > 1 - EPS:
            whole += 1
    if whole == size:
        return -float(max(33 - whole, whole))
    used = tightest_gpu(free, tasks[1][t])
    if free[used] > 1 - EPS:
        return -float(max(50 - tasks[0][t], 33))
    return -float(max(100 - int(free[used] * 100 + EPS) // 10, 50))


def score_dot_product(free: Any, cpus: float, scale: Any, tasks: Any, t: int) -> float:
    """Return the product of what is free and what is needed, in shares of the largest node."""
    product = scale[0] * free.sum() * scale[0] * tasks[0][t] * tasks[1][t]
    if scale[1] > 0:
        product += scale[1] * cpus * scale[1] * tasks[2][t]
    return float(-math.floor(100 * (1 - product / 2) + EPS))


def fragmentation(free: Any, cpus: float, kind: int, typical: Any, weight: Any) -> float:
    """Return the GPUs of a node that a task of the workload cannot use, as an expected value."""
    gpus, share, need_cpus, _, allowed = typical
    total = 0.0
    largest = 0.0
    whole = 0
    for g in range(len(free)):
        total += free[g]
        largest = max(largest, free[g])
        if free[g] > 1 - EPS:
            whole += 1
    lost = 0.0
    for m in range(len(weight)):
        enough = whole >= gpus[m] if gpus[m] > 1 else largest >= share[m] - EPS
        if gpus[m] == 0 or not enough or cpus < need_cpus[m] - EPS or not allowed[m, kind]:
            lost += weight[m] * total
        else:
            for g in range(len(free)):
                if free[g] < share[m] - EPS:
                    lost += weight[m] * free[g]
    return lost


def score_fgd(
    free: Any, cpus: float, kind: int, levels: int, typical: Any, weight: Any, tasks: Any, t: int
) -> tuple[float, int]:
    """Return by how much the fragmentation grows, and the GPU for which it grows least."""
    before = fragmentation(free, cpus, kind, typical, weight)
    after = free.copy()
    left = cpus - tasks[2][t]
    share = tasks[1][t]
    best, gpu = np.inf, -1
    if tasks[0][t] == 1 and share < 1 - EPS:
        for g in range(len(free)):
            if free[g] < share - EPS:
                continue
            after[g] = free[g] - share
            grown = fragmentation(after, left, kind, typical, weight) - before
            after[g] = free[g]
            if levels > 0:
                grown = -math.floor(levels / (1 + math.exp(grown)))
            if grown < best:
                best, gpu = grown, g
        return best, gpu
    missing = tasks[0][t]
    for g in range(len(free)):
        if missing > 0 and free[g] > 1 - EPS:
            after[g] = 0.0
            missing -= 1
    grown = fragmentation(after, left, kind, typical, weight) - before
    return (grown if levels == 0 else -math.floor(levels / (1 + math.exp(grown)))), -1


def unused_gpus(
    free: Any, cpus: float, memory_gb: float, kind: int, typical: Any, weight: Any
) -> float:
    """Return the GPUs that stay unused if tasks of one class fill the node, as expected value."""
    gpus, share, need_cpus, need_memory, allowed = typical
    total = 0.0
    whole = 0
    for g in range(len(free)):
        total += free[g]
        if free[g] > 1 - EPS:
            whole += 1
    unused = 0.0
    for m in range(len(weight)):
        copies = 0
        if gpus[m] > 0 and allowed[m, kind]:
            if share[m] > 1 - EPS:
                copies = whole // gpus[m]
            else:
                for g in range(len(free)):
                    copies += int((free[g] + EPS) / share[m])
            if copies * need_cpus[m] > cpus + EPS:
                copies = max(0, int((cpus + EPS) / need_cpus[m]))
            if copies * need_memory[m] > memory_gb + EPS:
                copies = max(0, int((memory_gb + EPS) / need_memory[m]))
        unused += weight[m] * (total - copies * gpus[m] * share[m])
    return unused


def value_of_node(
    free: Any, cpus: float, memory_gb: float, kind: int, typical: Any, weight: Any, value: Any
) -> float:
    """Return the value of what a node has free, in GPUs.

    It is the value of the free shares, times the chance that one of the next tasks can use them,
    less a little for what stays unused.
    """
    unused = unused_gpus(free, cpus, memory_gb, kind, typical, weight)
    total = 0.0
    most = 0.0
    for g in range(len(free)):
        total += free[g]
        most += value[int(free[g] * (len(value) - 1) + 1e-6)]
    if total <= EPS:
        return 0.0
    return float(most * (1 - (unused / total) ** NEXT) - LOST * unused)


def score_value(
    free: Any,
    cpus: float,
    memory_gb: float,
    kind: int,
    typical: Any,
    weight: Any,
    value: Any,
    tasks: Any,
    t: int,
) -> tuple[float, int]:
    """Return by how much the value of a node falls, and the GPU for which it falls least."""
    before = value_of_node(free, cpus, memory_gb, kind, typical, weight, value)
    after = free.copy()
    cpus_left = cpus - tasks[2][t]
    memory_left = memory_gb - tasks[3][t]
    share = tasks[1][t]
    if tasks[0][t] == 1 and share < 1 - EPS:
        best, gpu = np.inf, -1
        for g in range(len(free)):
            if free[g] < share - EPS:
                continue
            after[g] = max(0.0, free[g] - share)
            lost = before - value_of_node(
                after, cpus_left, memory_left, kind, typical, weight, value
            )
            after[g] = free[g]
            if lost < best - TIE:
                best, gpu = lost, g
        return best, gpu
    missing = tasks[0][t]
    for g in range(len(free)):
        if missing > 0 and free[g] > 1 - EPS:
            after[g] = 0.0
            missing -= 1
    return (
        before - value_of_node(after, cpus_left, memory_left, kind, typical, weight, value),
        -1,
    )


def score_node(nodes: Any, tasks: Any, rule: Any, t: int, n: int) -> tuple[float, int]:
    """Return the score of node n for task t (inf: it does not fit) and the GPU that it would get.

    The GPU is -1 for a task of whole GPUs or of none.
    """
    gpus, cpus, memory_gb, sizes, kind = nodes
    number, scale, levels, typical, weight, value = rule
    free = gpus[n]
    if not fits(free, cpus[n], memory_gb[n], kind[n], tasks, t):
        return np.inf, -1
    if number == FGD:
        return score_fgd(free, cpus[n], kind[n], levels, typical, weight, tasks, t)
    if number == VALUE:
        return score_value(
            free, cpus[n], memory_gb[n], kind[n], typical, weight, value[n], tasks, t
        )
    gpu = -1
    if tasks[0][t] == 1 and tasks[1][t] < 1 - EPS:
        gpu = tightest_gpu(free, tasks[1][t])
    if number == BEST_FIT:
        return score_best_fit(free, cpus[n], scale, levels, tasks, t), gpu
    if number == PACKING:
        return score_packing(free, sizes[n], tasks, t), gpu
    if number == DOT_PRODUCT:
        return score_dot_product(free, cpus[n], scale, tasks, t), gpu
    return 0.0, gpu


def set_score(score: Any, n: int, to: float) -> None:
    """Change the score of node n in a tournament."""
    i = len(score) // 2 + n
    score[i] = to
    i //= 2
    while i >= 1:
        lower = min(score[2 * i], score[2 * i + 1])
        if score[i] == lower:
            break
        score[i] = lower
        i //= 2


def update_scores(nodes: Any, tasks: Any, rule: Any, scores: Any, t: int) -> None:
    """Score the nodes that changed since task t was scored last; at first, all nodes."""
    score, gpu, scored_to, changed, last, changes = scores
    first = score.shape[1] // 2
    if scored_to[t] < 0:
        for n in range(len(last)):
            score[t, first + n], gpu[t, n] = score_node(nodes, tasks, rule, t, n)
        for i in range(first - 1, 0, -1):
            score[t, i] = min(score[t, 2 * i], score[t, 2 * i + 1])
    else:
        for i in range(scored_to[t], changes[0]):
            n = changed[i]
            if last[n] == i:
                new, gpu[t, n] = score_node(nodes, tasks, rule, t, n)
                set_score(score[t], n, new)
    scored_to[t] = changes[0]


def pick_node(score: Any, draw: float) -> int:
    """Return the node of the lowest score, or -1; a random number decides among equals."""
    first = len(score) // 2
    highest = score[1] + TIE
    if score[1] == np.inf:
        return -1
    skip = 0
    if draw > 0:
        equal = 0
        for i in range(first, 2 * first):
            if score[i] <= highest:
                equal += 1
        skip = int(draw * equal)
    if skip > 0:
        for i in range(first, 2 * first):
            if score[i] <= highest:
                if skip == 0:
                    return i - first
                skip -= 1
    i = 1
    while i < first:
        i *= 2
        if score[i] > highest:
            i += 1
    return i - first


def put_on_gpus(nodes: Any, tasks: Any, t: int, n: int, taken: int) -> None:
    """Take what task t needs from node n, on the GPUs that are the bits of `taken`."""
    gpus, cpus, memory_gb, _, _ = nodes
    cpus[n] -= tasks[2][t]
    memory_gb[n] -= tasks[3][t]
    for g in range(gpus.shape[1]):
        if taken >> g & 1:
            gpus[n, g] = max(0.0, gpus[n, g] - tasks[1][t])


def take_gpus(nodes: Any, tasks: Any, t: int, n: int, gpu: int) -> int:
    """Take what task t needs from node n, and return its GPUs as the bits of a number."""
    taken = 0
    if gpu >= 0:
        taken = 1 << gpu
    else:
        missing = tasks[0][t]
        for g in range(nodes[0].shape[1]):
            if missing > 0 and nodes[0][n, g] > 1 - EPS:
                taken |= 1 << g
                missing -= 1
    put_on_gpus(nodes, tasks, t, n, taken)
    return taken


def mark_changed(scores: Any, n: int) -> None:
    """Note that node n changed."""
    _, _, _, changed, last, changes = scores
    changed[changes[0]] = n
    last[n] = changes[0]
    changes[0] += 1


def give_back_gpus(nodes: Any, tasks: Any, t: int, n: int, taken: int) -> None:
    """Give back what task t holds on node n, with the GPUs that are the bits of `taken`."""
    gpus, cpus, memory_gb, _, _ = nodes
    cpus[n] += tasks[2][t]
    memory_gb[n] += tasks[3][t]
    for g in range(gpus.shape[1]):
        if taken >> g & 1:
            gpus[n, g] = min(1.0, gpus[n, g] + tasks[1][t])


def best_two(score: Any) -> tuple[int, float, float]:
    """Return the node of the lowest score, this score, and the lowest one of all other nodes."""
    at = pick_node(score, 0.0)
    if at < 0:
        return -1, np.inf, np.inf
    best = score[len(score) // 2 + at]
    set_score(score, at, np.inf)
    second = score[1]
    set_score(score, at, best)
    return at, best, second


def find_opening(
    wanted: int, order: Any, node: Any, taken: Any, nodes: Any, tasks: Any, rule: Any, scores: Any
) -> int:
    """Return the placed task whose move opens a place for a wanted task, or -1.

    Of those that fit on another node it is the one after which the scores of both tasks are lowest.
    """
    gpus, cpus, memory_gb, _, kind = nodes
    C = len(scores[0])
    lowest_at = np.full(C, -2, dtype=np.int64)
    lowest, second = np.empty(C), np.empty(C)
    least, found = np.inf, -1
    for i in range(len(order)):
        t, n = order[i], node[i]
        if not tasks[4][wanted, kind[n]]:
            continue
        if lowest_at[t] == -2:
            update_scores(nodes, tasks, rule, scores, t)
            lowest_at[t], lowest[t], second[t] = best_two(scores[0][t])
        elsewhere = second[t] if n == lowest_at[t] else lowest[t]
        if elsewhere == np.inf:
            continue
        before = gpus[n].copy()
        cpus_before, memory_before = cpus[n], memory_gb[n]
        give_back_gpus(nodes, tasks, t, n, taken[i])
        here = score_node(nodes, tasks, rule, wanted, n)[0]
        if here < np.inf:
            own = score_node(nodes, tasks, rule, t, n)[0]
            if here + elsewhere - own < least:
                least, found = here + elsewhere - own, i
        gpus[n] = before
        cpus[n] = cpus_before
        memory_gb[n] = memory_before
    return found


def place_tasks(
    order: Any,
    draws: Any,
    nodes: Any,
    tasks: Any,
    rule: Any,
    scores: Any,
    node: Any,
    taken: Any,
) -> None:
    """Place tasks one after the other; fill node (-1: it fits nowhere) and the GPUs taken.

    order has the class of each task, draws (., 2) random numbers in [0, 1).
    """
    for i in range(len(order)):
        t = order[i]
        update_scores(nodes, tasks, rule, scores, t)
        n = pick_node(scores[0][t], draws[i, 0])
        node[i] = n
        taken[i] = 0
        if n < 0:
            continue
        gpu = scores[1][t, n]
        if rule[0] == RANDOM and gpu >= 0:
            gpu = random_gpu(nodes[0][n], tasks[1][t], draws[i, 1])
        taken[i] = take_gpus(nodes, tasks, t, n, gpu)
        mark_changed(scores, n)
