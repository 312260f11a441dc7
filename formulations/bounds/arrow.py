"""Second derivatives by rows that concern few groups, such as those of a tenant.

A group touches the rows of one tenant and rows that many groups touch (pools, a budget, a limit on
changes). So the matrix of second derivatives has a block for each tenant, a border of the common
rows, and nothing else: an arrow. Its equations are solved block by block; what is left is a small
matrix of the common rows, the Schur complement. A model of another form has only common rows, or
many of them, and a dense matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np

from formulations.model.linear import Bools, Floats, Ints
from formulations.model.ragged import begins_run
from formulations.model.sparse_rows import SparseRows

DENSE = 48  # so many rows are all common, because a small dense matrix costs less
WIDE = 12  # a row with more than a twelfth of all entries of columns is common
LARGEST = 8  # rows of a block
TURNS = 8  # after so many turns twice as many rows of a block become common at once
SINGULAR = 1e-14  # a pivot that is smaller, relative to the diagonal, stands for no equation
FLOPS = 200_000  # of a matrix product that is too small for threads, which cost more than they save


@dataclass(frozen=True)
class Arrow:
    """Which rows are common, and to which block each other row belongs.

    Attributes
    ----------
    common : (W,)
        The common rows.
    place : (K, Q)
        The rows of each block, R where a block has fewer than K.
    block : (J,)
        The block whose rows each group touches, Q where it touches common rows only.
    slot : (R,)
        Place of each row in its block, or K + its place among the common rows.
    """

    common: Ints
    place: Ints
    block: Ints
    slot: Ints

    @staticmethod
    def of(A: SparseRows, group: Ints, J: int) -> Arrow:
        """Return the form of the rows of columns A (n, R) that belong to groups (n,)."""
        n, R = A.shape
        entries = np.bincount(A.indices, minlength=R)
        is_common = (entries > max(1, n) / WIDE) | (R <= DENSE)
        owner = np.repeat(group, np.diff(A.indptr))
        for turn in count():
            label = _connect(A.indices, owner, is_common, J)
            size = np.bincount(label[~is_common], minlength=R)
            large = np.flatnonzero(~is_common & (size[label] > LARGEST))
            if not len(large):
                break
            # of each block that is too large the row of most entries becomes common; later several
            order = large[np.lexsort((-entries[large], label[large]))]
            first = np.flatnonzero(begins_run(label[order]))
            rank = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
            is_common[order[rank < 2 ** (turn // TURNS)]] = True
        rows, common = np.flatnonzero(~is_common), np.flatnonzero(is_common)
        _, number = np.unique(label[rows], return_inverse=True)
        Q = int(number.max(initial=-1)) + 1
        order = np.argsort(number, kind="stable")
        first = np.flatnonzero(begins_run(number[order]))
        slot = np.empty(R, dtype=np.int64)
        slot[rows[order]] = np.arange(len(order)) - first[number[order]]
        K = int(slot[rows].max(initial=-1)) + 1
        slot[common] = K + np.arange(len(common))
        place = np.full((K, Q), R)
        place[slot[rows], number] = rows
        block_of_row = np.full(R, Q)
        block_of_row[rows] = number
        block = np.full(J, Q)
        np.minimum.at(block, owner, block_of_row[A.indices])
        return Arrow(common, place, block, slot)

    def split(self, x: Floats) -> Floats:
        """Return the numbers of the rows of blocks, (K, Q), 0 where there is none."""
        return np.append(x, 0.0)[self.place]

    def join(self, own: Floats, common: Floats) -> Floats:
        """Return numbers of the rows of blocks (K, Q) and of the common rows (W,) by row, (R,)."""
        x = np.empty(len(self.slot) + 1)
        x[self.place] = own
        x[self.common] = common
        return x[:-1]


def _connect(row: Ints, owner: Ints, is_common: Bools, J: int) -> Ints:
    """Return a label for each row (R,); rows that are not common and share a group share it."""
    label = np.arange(len(is_common))
    on = ~is_common[row]
    row, owner = row[on], owner[on]
    while True:
        lowest = np.full(J, len(label))
        np.minimum.at(lowest, owner, label[row])
        new = label.copy()
        np.minimum.at(new, row, lowest[owner])
        if (new == label).all():
            return label
        label = new


@dataclass(frozen=True)
class ArrowMatrix:
    """A symmetric matrix (R, R) of this form.

    Attributes
    ----------
    own : (K, K + W, Q)
        Rows of the blocks; their columns are those of the block and then the common ones.
    shared : (W, W)
        Rows and columns of the common rows.
    """

    form: Arrow
    own: Floats
    shared: Floats

    @staticmethod
    def of(dense: Floats) -> ArrowMatrix:
        """Return a dense matrix in this form: it has no blocks, and all rows are common."""
        rows, none = np.arange(len(dense)), np.zeros((0, 0), dtype=np.int64)
        form = Arrow(rows, none, np.zeros(0, dtype=np.int64), rows)
        return ArrowMatrix(form, np.zeros((0, len(dense), 0)), dense)

    def times(self, factor: float) -> ArrowMatrix:
        """Return the matrix times a number."""
        return ArrowMatrix(self.form, factor * self.own, factor * self.shared)

    def plus_diagonal(self, more: Floats) -> ArrowMatrix:
        """Return the matrix with numbers (R,) added to its diagonal."""
        own, shared = self.own.copy(), self.shared.copy()
        at = np.arange(len(own))
        own[at, at] += self.form.split(more)
        shared.flat[:: len(shared) + 1] += more[self.form.common]
        return ArrowMatrix(self.form, own, shared)

    def __matmul__(self, x: Floats) -> Floats:
        rows, common = self.form.split(x), x[self.form.common]
        K = len(rows)
        if not K:
            return self.form.join(rows, self.shared @ common)
        wide = np.concatenate([rows, np.repeat(common[:, None], rows.shape[1], axis=1)])
        border = (self.own[:, K:] * rows[:, None]).sum(axis=(0, 2))
        return self.form.join((self.own * wide).sum(axis=1), self.shared @ common + border)

    def solve(self, rhs: Floats, free: Bools) -> Floats:
        """Return d (R,) that solves the equations of the rows `free`, 0 on all other rows."""
        form = self.form
        K, W = len(form.place), len(form.common)
        is_free_common = free[form.common]
        S = self.shared * (is_free_common[:, None] & is_free_common)
        S.flat[:: W + 1] += ~is_free_common
        left = rhs[form.common] * is_free_common
        if not K:
            return form.join(form.split(rhs), _solve(S, left))
        is_free = form.split(free.astype(np.float64))
        M = np.concatenate([self.own, form.split(rhs)[:, None]], axis=1)
        M *= is_free[:, None]
        M[:, :K] *= is_free
        M[:, K : K + W] *= is_free_common[:, None]
        border = M[:, K : K + W].copy()
        for k in range(K):
            pivot = M[k, k]
            pivot[pivot <= SINGULAR * self.own[k, k]] = np.inf  # no equation: 0
            M[k, k + 1 :] /= pivot
            factor = M[:, k].copy()
            factor[k] = 0.0
            M[:, k + 1 :] -= factor[:, None] * M[k, k + 1 :]
        along, d = M[:, K : K + W], M[:, -1]
        if W:
            flat = border.transpose(1, 0, 2).reshape(W, -1)
            S -= flat @ along.transpose(1, 0, 2).reshape(W, -1).T
            left -= flat @ d.ravel()
        common = _solve(S, left)
        return form.join(d - (along * common[:, None]).sum(axis=1), common)


def _solve(S: Floats, rhs: Floats) -> Floats:
    """Solve S d = rhs; of many solutions the smallest one."""
    try:
        d = np.linalg.solve(S, rhs)
    except np.linalg.LinAlgError:
        d = np.linalg.lstsq(S, rhs, rcond=None)[0]
    return np.asarray(d, dtype=np.float64)


class ArrowSums:
    """Sums over columns and groups that have the form of an arrow.

    Parameters
    ----------
    A : (n, R)
        Use of the rows by column.
    group : (n,)
        Group of each column, of J.
    """

    def __init__(self, A: SparseRows, group: Ints, J: int) -> None:
        self.A, self.J = A, J
        self.form = form = Arrow.of(A, group, J)
        self.K, self.W, self.Q = len(form.place), len(form.common), form.place.shape[1]
        # groups by block, those of none last
        order = np.argsort(form.block, kind="stable")
        rank = np.empty(J, dtype=np.int64)
        rank[order] = np.arange(J)
        block = form.block[order]
        self._end = int(np.searchsorted(block, self.Q))
        self._first = np.flatnonzero(begins_run(block[: self._end]))
        self._present = block[self._first]
        self._column = np.repeat(np.arange(len(group)), np.diff(A.indptr))
        self._slot = form.slot[A.indices]
        self._key = self._slot * J + rank[group][self._column]
        self._block = form.block[group][self._column]
        # the pairs of slots that meet in a block; `_own` has the pair of each place of the matrix
        K, L = self.K, self.K + self.W
        k, m = np.divmod(np.arange(K * L), max(1, L))
        self._left, self._right = k[m >= k], m[m >= k]
        self._own = np.zeros((K, L), dtype=np.int64)
        self._own[self._left, self._right] = np.arange(len(self._left))
        self._own[:, :K] = np.maximum(self._own[:, :K], self._own[:, :K].T)

    def spread(self, x: Floats) -> ArrowMatrix:
        """Return sum_c x_c a_c a_c' - sum_j e_j e_j', with e_j the sum of x_c a_c in group j."""
        K, W, J = self.K, self.W, self.J
        L = K + W
        sums = np.asarray(x @ self._squares, dtype=np.float64)
        amount = self.A.data * x[self._column]
        E = np.bincount(self._key, amount, L * J).astype(np.float64).reshape(L, J)
        own = sums[: len(self._left) * self.Q].reshape(len(self._left), self.Q)
        if K and self._end:
            pairs = E[self._left, : self._end] * E[self._right, : self._end]
            own[:, self._present] -= np.add.reduceat(pairs, self._first, axis=1)
        shared = sums[len(self._left) * self.Q :].reshape(W, W)
        shared = shared + shared.T
        shared.flat[:: W + 1] *= 0.5
        shared -= _gram(E[K:].T)
        return ArrowMatrix(self.form, own[self._own], shared)

    @cached_property
    def _squares(self) -> SparseRows:
        """Matrix (n, ..): x times it is sum_c x_c a_c a_c', pairs by block, then common ones."""
        A, K, W, Q = self.A, self.K, self.W, self.Q
        left, right = _pairs(A.indptr, np.diff(A.indptr))
        # the pairs of a block lie at number of the pair x Q + block, common ones behind them
        T = len(self._left)
        first = np.empty((K + W, K + W), dtype=np.int64)
        first[:K], first[K:, :K] = self._own * Q, self._own[:, K:].T * Q
        first[K:, K:] = T * Q + np.arange(W * W).reshape(W, W)
        at = first.ravel()[self._slot[left] * (K + W) + self._slot[right]]
        if K:
            block = np.where(self._slot < K, self._block, 0)
            at += np.maximum(block[left], block[right])
        pairs = np.diff(A.indptr) * (np.diff(A.indptr) + 1) // 2
        indptr = np.append(0, np.cumsum(pairs))
        return SparseRows(A.data[left] * A.data[right], at, indptr, (A.shape[0], T * Q + W * W))


def _pairs(indptr: Ints, width: Ints) -> tuple[Ints, Ints]:
    """Return the positions (left, right) of all pairs of entries of one column, left <= right."""
    count = width * (width + 1) // 2
    total = int(count.sum())
    begin = np.cumsum(count) - count
    left = np.empty(total, dtype=np.int64)
    right = np.empty(total, dtype=np.int64)
    for d in np.unique(width):
        s, t = np.triu_indices(int(d))
        on = np.flatnonzero(width == d)
        at = begin[on][:, None] + np.arange(len(s))
        left[at], right[at] = indptr[on][:, None] + s, indptr[on][:, None] + t
    return left, right


def _gram(E: Floats) -> Floats:
    """Return E'E in slices, each of which is too small for threads of the matrix library."""
    J, R = E.shape
    k = max(1, FLOPS // max(1, R * R))
    whole = J - J % k
    out = E[whole:].T @ E[whole:]
    if whole:
        slices = np.ascontiguousarray(E[:whole]).reshape(-1, k, R)
        out = out + (slices.transpose(0, 2, 1) @ slices).sum(axis=0)
    return np.asarray(out, dtype=np.float64)
