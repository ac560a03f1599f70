"""The flags of a context: how the keys of a row depend on each other and on their position."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from scaling.cli.flags import flag

if TYPE_CHECKING:
    from scaling.context import AbstractContext
    from scaling.density import AbstractDensity

# By the name that the library gives the setting.
_FLAGS = {
    "base": "rope_base", "angles": "rope_angles", "turns": "rope_turns", "factor": "yarn_factor",
    "original_length": "yarn_length", "rotated": "rotated", "pairing": "pairing", "first": "first_position",
    "weights": "weights", "m": "m", "drift": "drift", "size": "cluster_size", "repeat": "repeat",
}  # fmt: skip
_ALIASES = {"mean": "drift", "planes": "rotated"}


@dataclass(frozen=True)
class Context:
    """The context: how keys depend on each other and on their position"""

    context: Annotated[
        str,
        flag(
            "iid|rope|moving-average|clusters",
            "Independent keys, these under RoPE, Gaussian moving averages on the sphere, or repeated keys. A flag of RoPE puts "
            "it on top of the last two. Default: iid.",
        ),
    ] = "iid"
    rope_base: Annotated[str | None, flag("FLOAT", "RoPE: base of geometric frequencies. Default: 10000.")] = None
    rope_angles: Annotated[
        str | None, flag("X,X,...", "RoPE: frequencies in radians per position, in place of --rope-base.")
    ] = None
    rope_turns: Annotated[
        str | None, flag("P/Q,P/Q,...", "RoPE: frequencies as fractions of a turn per position, in place of --rope-base.")
    ] = None
    yarn_factor: Annotated[str | None, flag("FLOAT", "RoPE: factor of YaRN scaling, with --yarn-length.")] = None
    yarn_length: Annotated[str | None, flag("INT", "RoPE: original context length of YaRN scaling.")] = None
    rotated: Annotated[str | None, flag("INT", "RoPE: number of rotated coordinates, even. Default: all d.")] = None
    pairing: Annotated[
        str | None, flag("interleaved|half-split", "RoPE: which coordinates share a plane. Default: interleaved.")
    ] = None
    first_position: Annotated[str | None, flag("INT", "RoPE: position of the first key, from the query. Default: 1.")] = None
    weights: Annotated[str | None, flag("X,X,...", "moving-average: weights of the innovations, any scale.")] = None
    m: Annotated[str | None, flag("INT", "moving-average: m + 1 equal weights, in place of --weights.")] = None
    drift: Annotated[str | None, flag("X,X,...", "moving-average: mean of a moving average, d numbers. Default: 0.")] = None
    cluster_size: Annotated[str | None, flag("INT", "clusters: every key is repeated so many times.")] = None
    repeat: Annotated[
        str | None, flag("FLOAT", "clusters: probability that a key repeats the one before, in place of --cluster-size.")
    ] = None

    @property
    def independent(self) -> bool:
        """Whether the keys are independent, with no flag beside."""
        return self.context == "iid" and not self._given()

    def build(self, density: "AbstractDensity") -> "AbstractContext":
        """The context over keys of a density. Raises `ValueError` in terms of the flags."""
        from scaling.context.build import build_context

        try:
            return build_context(density, kind=self.context, **{name: self._value(name) for name in self._given()})
        except ValueError as error:
            raise ValueError(re.sub(r"`(\w+)`", _flag_name, str(error))) from None

    def _given(self) -> list[str]:
        return [name for name, flag_name in _FLAGS.items() if getattr(self, flag_name) is not None]

    def _value(self, name: str) -> Any:
        from scaling.cli import values

        text = getattr(self, _FLAGS[name])
        if name in ("angles", "weights", "drift"):
            return values.numbers(_FLAGS[name], text)
        if name == "turns":
            return [part.strip() for part in text.split(",")]
        return text if name == "pairing" else values.number(name, text)


def _flag_name(match: re.Match) -> str:
    name = str(match.group(1))
    name = _ALIASES.get(name, name)
    return f"`{_FLAGS.get(name, name).replace('_', '-')}`"
