"""Names, and the values of every statistic on one row that can be checked by hand."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from scaling.attention import block_state, map_row, row_of
from scaling.statistic import default_names, evaluate, known_names, parse, ranks_of

# Three keys with weights 4/7, 2/7, 1/7 at beta = 2; their D2Qs are 0.1 + (0, 1, 2) log(2) / 2.
T = 0.1 + np.arange(3) * np.log(2) / 2
A = np.array([4, 2, 1]) / 7
TABLE = {
    "top_weight": 4 / 7,
    "second_weight": 2 / 7,
    "top_gap": 3 / 7,
    "ipr": 21 / 49,
    "sum_cubes": 73 / 343,
    "sum_fourths": 273 / 2401,
    "entropy": float(-np.sum(A * np.log(A))),
    "log_partition": float(np.log(1.75) - 0.2),
    "mean_d2q": float(A @ T),
    "nearest_d2q": float(np.min(T)),
    "tangential_square_given_d2q": float(A**2 @ (2 * T - T**2)),
    "tangential_square": 0.3,
    "output_square": float((1 - A @ T) ** 2 + 0.3),
    "displacement(2)": -2.5,
    "displacement_square": 1.5**2 + 2.5**2,
    "top_mass(2)": 6 / 7,
    "ordered_ratio(3)": 1 / 4,
    "ordered_weight(3)": 1 / 7,
    "ipr_squared": (21 / 49) ** 2,
    "top_mass(2)_squared": (6 / 7) ** 2,
}


@pytest.mark.parametrize("name", TABLE)
def test_value(name):
    statistics = parse([name])
    ranks = ranks_of(statistics)
    state = block_state(jnp.asarray(T, jnp.float32), jnp.asarray([2.0]), jnp.float32(1), 3, jnp.zeros((2, 3)))
    row = row_of(state, jnp.asarray([2.0]), ranks)
    row = map_row(row, lambda x: np.asarray(x, np.float64), lambda x: np.asarray(x, np.float64))
    vector = np.sqrt(np.array([[0.1], [0.2]])) * 7 / 4
    row = eqx.tree_at(lambda r: (r.vector, r.displacement), row, (vector, np.array([[1.5], [-2.5]])), is_leaf=lambda x: x is None)
    value = evaluate(statistics, row, ranks, np.array([2.0]), np.array([1.0]))
    assert value[0, 0] == pytest.approx(TABLE[name], rel=2e-6)


def test_every_statistic_is_in_the_table():
    named = [name.replace("displacement(2)", "displacement(j)") for name in TABLE if not name.endswith("_squared")]
    plain = {name.replace("(2)", "(k)").replace("(3)", "(k)") for name in named}
    assert plain == set(known_names())
    assert set(default_names()) <= set(known_names())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["top_wieght"], "did you mean `top_weight`"),
        (["displacement(0)"], r"coordinate >= 1 in displacement(j)"),
        (["displacement(\u0663)"], "coordinate >= 1"),
        (["displacement"], "must be one of"),
        (["top_mass(0)"], "rank >= 1"),
        (["top_mass(x)"], "rank >= 1"),
        (["top_mass(-1)"], "rank >= 1"),
        (["top_mass"], "must be one of"),
        (["top_mass(k)"], "rank >= 1"),
        (["nothing_squared"], "must be one of"),
        (["ipr", "ipr"], "every statistic once"),
        ([], "at least one"),
    ],
)
def test_unknown_names_are_refused(names, message):
    with pytest.raises(ValueError, match=r"Argument `statistics` must") as caught:
        parse(names)
    assert message in str(caught.value)
