"""From tasks to programs: the symmetry of a task makes the program small, and what is left of W is exact.

Only inner products of tokens matter: W can be projected on both sides to the span of the tokens, which changes no logit and
raises no singular value. If a group of permutations of tokens is a group of isometries and maps the cases of a routing to one
another, the mean of W over the group is feasible, too, and not dearer, since the nuclear norm is convex and invariant. So W may
be taken to commute with the group, and Schur's lemma makes it block diagonal: a block for each irreducible representation, which
occurs as often as the representation has dimensions. One case for each orbit of queries, one key for each orbit of keys is left.
"""

import numpy as np
from jaxtyping import Float, Int

from toyblocks.optimum.program import Component, Program, orthonormal
from toyblocks.task import AbstractTask, Backcopy, Grouped, require_room


def program_of(task: AbstractTask, pattern: str) -> Program:
    """The program of a task, by its symmetry where there is one. Raises `ValueError` for an unknown pattern."""
    if isinstance(task, Backcopy):
        return backcopy_program(task, pattern)
    if isinstance(task, Grouped) and (task.noise == "orthonormal" or task.delta == 0):
        return grouped_program(task, pattern)
    return token_program(task, pattern)


def token_program(task: AbstractTask, pattern: str) -> Program:
    """The program in the span of all tokens, for any task: one block. Raises `ValueError` for an unknown pattern, and for
    what does not fit in memory."""
    routing = task.routing(pattern)
    keys = tokens = task.tokens / np.sqrt(task.dim)
    zero = np.zeros(routing.target.shape, bool)
    target, other = routing.target, routing.other
    if isinstance(task, Grouped):  # an equality for every target that ties with others, in all entries of W
        require_room("per_group", task.per_group, int(target[routing.tied].sum()), min(task.dim, len(tokens)) ** 2)
    if isinstance(task, Grouped) and task.centroid_keys and task.delta > 0:
        noise = task.etas.reshape(-1, task.dim) / np.sqrt(task.dim)
        keys = np.concatenate([tokens, noise])
        absent = np.zeros((len(zero), len(noise)), bool)
        copies = task.is_copy[routing.query] & routing.other[:, 0]  # one of the two cases of a copy query is enough
        if not copies.any():
            copies = task.is_copy[routing.query]
        target, other = np.concatenate([target, absent], axis=1), np.concatenate([other, absent], axis=1)
        zero = np.concatenate([zero, absent | copies[:, None]], axis=1)
    return Program((_span(tokens[routing.query], keys),), target, other, routing.tied, zero)


def backcopy_program(task: Backcopy, pattern: str) -> Program:
    """The program of the backcopy task: one block of T + 2 rows (p_1, ..., p_T, 1_D, 1_C) and T + 3 columns
    (and BOS), for any |C|, |D| >= 1 and both geometries.

    The group is S_C x S_D, which permutes contents. Its irreducible representations in the span are the trivial one (p_1, ...,
    p_T, 1_C, 1_D and BOS, less the direction sum h_i - sum p_t to which all tokens are orthogonal) and the standard ones of C and
    of D, on which W is a number a_C and a_D. These may be taken to be 0. Let f(i, j) = h_i^T W h_j for i, j in D, n = |D|, be
    m + a(1[i = j] - 1/n):

    - f enters through dormant queries only. Sink: keys of D lose, the query's own content among them. Where a > 0, a -> 0 lowers
      the largest f(i, .), which every earlier position and the query itself have. Where a < 0, take a -> 0 and m -> m +
      a(1 - 1/n), the least f: it lowers all f(i, j) to f(i, i).
    - Diagonal: the query's own f(i, i) wins and the f(i, .) of earlier positions lose. Where a > 0, raise all of them to f(i, i),
      which an earlier position has anyway; where a < 0, a -> 0 raises f(i, i) and lowers the largest of the others.
    - C (copy queries; all contents of the position before win, dormant ones alone if that is position 1; earlier positions and
      the query itself lose): where a > 0, a -> 0 raises the least f(i, .) and lowers the largest and f(i, i); where
      a < 0, lower all of them to f(i, i), the least of the winning ones already.

    Moving m by a(1 - 1/n) changes the entry (1_D, 1_D) of the trivial block by (n - 1) a, and its nuclear norm by at most
    (n - 1)|a|, which is what a cost. So in no case does the norm grow. Then all contents of a class have the same logits, and one
    of each is left. Raises `ValueError` for an unknown pattern.
    """
    routing = task.routing(pattern)
    content = task.content_of
    kept = np.flatnonzero((content < 0) | (content == 0) | (content == task.dormant))
    members = np.where(content < 0, 0, np.where(content < task.dormant, 1, 2)) + 3 * task.position_of
    means = np.array([task.tokens[members == members[each]].mean(axis=0) for each in kept]) / np.sqrt(task.dim)
    cases = np.isin(routing.query, kept)
    query = np.searchsorted(kept, routing.query[cases])
    target, other = routing.target[cases][:, kept], routing.other[cases][:, kept]
    key = _coordinates(task, kept)
    left, right = np.linalg.pinv(key[1:, :-1]) @ means[1:], np.linalg.pinv(key) @ means
    block = Component(key[query, None, :-1], key[:, None], left[None], right[None])
    return Program((block,), target, other, routing.tied[cases], np.zeros(target.shape, bool))


def grouped_program(task: Grouped, pattern: str) -> Program:
    """The program of the grouped task with orthonormal noise, at any coherence and size: at most three small blocks.

    The group is the wreath product of S_n and S_C: tokens of a group are permuted, and groups, dormant and copy tokens alike.
    The span of S and the noise is the sum of trivial representations (BOS, sum_c dbar_c, sum_c c_c, sum_ci eta_ci), of standard
    ones of S_C (dbar_c, c_c and sum_i eta_ci, less their means over c; C - 1 dimensions) and of one representation of C(n - 1)
    dimensions, irreducible (eta_ci less the mean over i). So |W|_* = |A|_* + (C - 1)|B|_* + C(n - 1)|a|. Within each, orthonormal
    sets are built from the Gram matrix, since S is not orthonormal at coherence > 0; dbar_c and the noise meet in the tokens
    lambda dbar_c + eta_ci alone, unless `centroid_keys` tells them apart. Raises `ValueError` for an unknown pattern.
    """
    routing, (groups, members) = task.routing(pattern), (task.groups, task.per_group)
    dormant = np.arange(1, 1 + groups * members).reshape(groups, members)
    copy = 1 + groups * members + np.arange(groups)
    kept = np.array([0, dormant[0, 0], *dormant[0, 1:2], *dormant[1:2, 0], *copy[:2]])
    which = np.where(kept == 0, 0, np.where(task.is_copy[kept], 2, 1))  # the family of each key: BOS, d, c, and below eta
    group, member = task.group_of[kept], np.where(which == 1, (kept - 1) % members, 0)
    cases = np.isin(routing.query, [dormant[0, 0], copy[0]])
    target, other = routing.target[cases][:, kept], routing.other[cases][:, kept]
    zero = np.zeros(target.shape, bool)
    query = np.searchsorted(kept, routing.query[cases])
    places = which[query], group[query], member[query]

    unit = np.sqrt(task.dim)
    noise, bos = task.etas / unit, task.tokens[0] / unit
    tokens = task.tokens[dormant].mean(axis=1) / unit
    families = np.stack([np.zeros_like(tokens), tokens, task.tokens[copy] / unit, noise.mean(axis=1)])  # [4 C d]
    if task.centroid_keys and task.delta > 0:
        more = np.arange(min(groups, 2))  # eta_11 and eta_21
        which, group = np.concatenate([which, 0 * more + 3]), np.concatenate([group, more])
        member, absent = np.concatenate([member, 0 * more]), np.zeros((len(target), len(more)), bool)
        target, other = np.concatenate([target, absent], axis=1), np.concatenate([other, absent], axis=1)
        zero = np.concatenate([zero, absent | (places[0] == 2)[:, None]], axis=1)

    even, odd, inside = np.full((1, groups), groups**-0.5), _contrasts(groups), _contrasts(members)
    trivial = np.einsum("mc,fcd->fmd", even, families)
    trivial[0, 0] = bos
    standard = np.einsum("mc,fcd->fmd", odd, families)
    single = np.einsum("li,cid->cld", inside, noise).reshape(1, -1, task.dim)
    at_bos = np.where(which == 0, 1.0, groups**-0.5)[:, None]
    within = np.zeros((groups, groups * (members - 1), members))
    for c in range(groups):
        within[c, c * (members - 1) : (c + 1) * (members - 1)] = inside
    key_inside = within[group, :, member] * ((which == 1) | (which == 3))[:, None]
    query_inside = within[places[1], :, places[2]] * (places[0] == 1)[:, None]
    components = [
        _isotypic(trivial, places[0], np.full((len(query), 1), groups**-0.5), which, at_bos),
        _isotypic(standard, places[0], odd[:, places[1]].T, which, odd[:, group].T),
        _isotypic(single, np.zeros_like(places[0]), query_inside, np.zeros_like(which), key_inside),
    ]
    tied = routing.tied[cases] & False  # the keys of one group are one orbit for a copy query
    return Program(tuple(each for each in components if each is not None), target, other, tied, zero)


def _coordinates(task: Backcopy, kept: Int[np.ndarray, "keys"]) -> Float[np.ndarray, "keys coordinates"]:
    """Coordinates p_1, ..., p_T, 1_D/sqrt|D|, 1_C/sqrt|C|, BOS of mean tokens. They are one more than the span has
    dimensions, but most of them are 0, which makes the interior-point method several times faster."""
    found = np.zeros((len(kept), task.context_length + 3))
    found[0, -1] = 1.0
    rows, copy = np.arange(1, len(kept)), task.content_of[kept[1:]] >= task.dormant
    found[rows, task.position_of[kept[1:]] - 1] = 0.5**0.5
    found[rows, task.context_length + copy] = (2.0 * np.where(copy, task.copy, task.dormant)) ** -0.5
    return found


def _span(queries: Float[np.ndarray, "cases d"], keys: Float[np.ndarray, "keys d"]) -> Component:
    """One block in the spans of queries and of keys."""
    left, right = orthonormal(queries), orthonormal(keys)
    return Component((queries @ left.T)[:, None], (keys @ right.T)[:, None], left[None], right[None])


def _contrasts(count: int) -> Float[np.ndarray, "less count"]:
    """An orthonormal basis of the vectors of mean 0."""
    rows = np.tril(np.ones((count, count)))[:-1]
    sizes = np.arange(1, count)
    rows[sizes - 1, sizes] = -sizes
    return rows / np.sqrt(sizes * (sizes + 1))[:, None]


def _isotypic(
    families: Float[np.ndarray, "families copies d"],
    query_family: Int[np.ndarray, "cases"],
    query_weight: Float[np.ndarray, "cases copies"],
    key_family: Int[np.ndarray, "keys"],
    key_weight: Float[np.ndarray, "keys copies"],
) -> Component | None:
    """The block of a representation. Families f span copies of it: <F_fm, F_gn> = 1[m = n] Gram_fg; a token of family f is
    sum_m weight_m F_fm there. None where nothing is there."""
    if families.shape[1] == 0:
        return None

    def side(family, weight):
        present = np.isin(np.arange(len(families)), family)
        gram = families[:, 0] @ families[:, 0].T * np.outer(present, present)
        values, vectors = np.linalg.eigh(gram)
        good = values > 1e-12
        root = vectors[:, good] * np.sqrt(values[good])
        basis = np.einsum("fr,fmd->mrd", vectors[:, good] / np.sqrt(values[good]), families)
        return weight[:, :, None] * root[family][:, None, :], basis

    (query, left), (key, right) = side(query_family, query_weight), side(key_family, key_weight)
    return Component(query, key, left, right) if left.shape[1] and right.shape[1] else None
