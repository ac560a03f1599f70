"""The flags that commands share, and what they mean as arguments of the library.

All values arrive as text. NumPy is imported when they are converted (`scaling.cli.values`), not for help.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from scaling.density import AbstractDensity

DENSITIES = ("uniform", "vmf", "quadratic")


def flag(metavar: str, help: str) -> Any:
    """A flag with its help; `metavar` says what it takes. Its value is text, and so is `None`, which tyro would take for none."""
    return tyro.conf.arg(metavar=metavar, help=help, help_behavior_hint="", constructor=str)


Json = Annotated[bool, tyro.conf.arg(help="Answer with one JSON object on stdout.", help_behavior_hint="")]
Dimension = Annotated[str, flag("INT", "Ambient dimension, >= 2: keys and query are unit vectors [d].")]
Length = Annotated[str, flag("INT", "Context length, the number of keys, up to 1e18; 1e9 is an integer here.")]
Beta = Annotated[str | None, flag("FLOAT", "Inverse temperature, >= 0. One of --beta, --gamma and --exponent is required.")]
Gamma = Annotated[str | None, flag("FLOAT", "beta = gamma n^alpha with alpha = 2/(d-1), in place of --beta.")]
Exponent = Annotated[str | None, flag("FLOAT", "beta = n^exponent, in place of --beta.")]
TensorFile = Annotated[
    tyro.conf.Positional[str],
    flag(
        "FILE",
        "Tensors of attention layers, .npz or .safetensors. One layer: `q` [heads n head_dim] and `k` [kv_heads n head_dim], "
        "both after rotary embedding, and where they are known `v` [kv_heads n value_dim], `scaling` [] of the logits, `X` [n d] "
        "(the residual stream into the layer), `Z` [n d] (its norm, without the learnt scale), `attention_output` [n d], `W_O` "
        "[heads d value_dim], `W_V` or `W_Vg` [kv_heads value_dim d] (with the norm's scale). Several layers: the same names "
        "below L0/, L1/, ...; single heads: below L0H3/, without the axis of heads, X and Z below L0/. A leading axis of "
        "sequences may be there. toyblocks.export writes such files from models of transformers.",
    ),
]
LogitScaling = Annotated[
    str | None, flag("FLOAT", "Logits are this times q k^T, > 0. Default: as in the file, else 1/sqrt(head_dim).")
]
FigurePath = Annotated[
    str | None,
    flag("PATH", "Draws the report: to a file .png or .pdf, or to a directory as image, PDF, data (netCDF) and caption."),
]
Statistics = Annotated[
    str | None, flag("NAME,NAME,...", "Statistics, such as top_weight,ipr,entropy,top_mass(3). Default: all that need no rank.")
]


@dataclass(frozen=True)
class Cell:
    """The cell: dimension, context length and inverse temperature"""

    d: Dimension
    n: Length
    beta: Beta = None
    gamma: Gamma = None
    exponent: Exponent = None

    def resolve(self) -> tuple[int, float, float]:
        """d, n and beta. Raises `ValueError` unless exactly one flag gives the inverse temperature."""
        from scaling.cli import values

        d, n = values.size(self.d, self.n)
        return d, n, values.inverse_temperature(d, n, self.beta, self.gamma, self.exponent)


@dataclass(frozen=True)
class Keys:
    """The law of the keys, and the query"""

    density: Annotated[
        str,
        flag("uniform|vmf|quadratic", "Density of a key: uniform, von Mises-Fisher, or prop. to exp(x^T M x). Default: uniform."),
    ] = "uniform"
    concentration: Annotated[str | None, flag("FLOAT", "Concentration of vmf, >= 0.")] = None
    mean: Annotated[str | None, flag("X,X,...", "Mean of vmf, a unit vector. Default: the first axis.")] = None
    matrix: Annotated[
        str | None, flag("X,X,...;X,X,...", "M of quadratic: rows separated by ';' (quote it), or all d*d numbers row by row.")
    ] = None
    query: Annotated[str | None, flag("X,X,...", "Query, a unit vector. Default: the first axis.")] = None

    def concentration_at_query(self, d: int) -> float | None:
        """0 for uniform keys, the concentration of von Mises-Fisher keys with their mean at the query, else None; without JAX."""
        from scaling.cli import values

        self._require_consistent()
        query = values.vector("query", self.query, d)
        if self.density == "uniform":
            return 0.0
        if self.density == "quadratic":
            return None
        mean = values.vector("mean", self.mean, d)
        concentration = values.at_least("concentration", self.concentration, 0.0)
        same = max(abs(m - q) for m, q in zip(mean, query, strict=True)) <= 1e-6  # as `symmetric_about`
        return concentration if same or concentration == 0 else None

    def centred_concentration(self, d: int) -> float:
        """`concentration_at_query`; raises `ValueError` where there are no exact values."""
        concentration = self.concentration_at_query(d)
        if concentration is None:
            raise ValueError(
                "Argument `density` must be uniform, or vmf with its mean at the query, for exact values, "
                f"but was {self.density}{' with another mean' if self.density == 'vmf' else ''}."
            )
        return concentration

    def law(self, d: int) -> "tuple[AbstractDensity, Any]":
        """The density, and the query as a unit vector [d]."""
        from scaling.cli import values

        self._require_consistent()
        query = values.vector("query", self.query, d)
        from scaling import density

        if self.density == "vmf":
            concentration = values.at_least("concentration", self.concentration, 0.0)
            return density.VonMisesFisher(mean=values.vector("mean", self.mean, d), concentration=concentration), query
        if self.density == "quadratic":
            return density.Quadratic(matrix=values.matrix(self.matrix, d)), query
        return density.Uniform(d), query

    def _require_consistent(self) -> None:
        from scaling import _check

        _check.known("density", self.density, DENSITIES)
        owners = {"concentration": "vmf", "mean": "vmf", "matrix": "quadratic"}
        for name, owner in owners.items():
            value = getattr(self, name)
            if value is not None and self.density != owner:
                raise ValueError(f"Argument `{name}` must come with --density {owner}, but came with --density {self.density}.")
            if value is None and self.density == owner and name != "mean":
                raise ValueError(f"Argument `{name}` must be given with --density {owner}.")
