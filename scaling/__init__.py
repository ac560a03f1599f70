"""Scaling limits of softmax attention over a long random context.

n random keys on a sphere, one query, softmax at inverse temperature beta: which beta(n) keeps attention selective, and what
laws the ordered weights and the output follow.
Source of the theorems: "Scaling Limits of Long-Context Transformers" (Bruno, Chen, Lin, Polyanskiy, Rigollet).
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaling.context import FixedClusters as FixedClusters
    from scaling.context import GeometricClusters as GeometricClusters
    from scaling.context import Independent as Independent
    from scaling.context import MovingAverage as MovingAverage
    from scaling.context import Rotary as Rotary
    from scaling.context import Subsphere as Subsphere
    from scaling.density import LogDensity as LogDensity
    from scaling.density import Mixture as Mixture
    from scaling.density import ProjectedNormal as ProjectedNormal
    from scaling.density import Quadratic as Quadratic
    from scaling.density import SphericalCap as SphericalCap
    from scaling.density import Uniform as Uniform
    from scaling.density import VonMisesFisher as VonMisesFisher
    from scaling.dynamics import evolve as evolve
    from scaling.estimate import Estimate as Estimate
    from scaling.exact import critical_beta as critical_beta
    from scaling.exact import expected as expected
    from scaling.exact import expected_limit as expected_limit
    from scaling.exact.mean_field import mean_field as mean_field
    from scaling.exact.mean_field import mean_field_covariance as mean_field_covariance
    from scaling.field import output_field as output_field
    from scaling.postln import post_ln as post_ln
    from scaling.rope import PhaseLaw as PhaseLaw
    from scaling.rope import Rope as Rope
    from scaling.rope import log_orbit_intensity as log_orbit_intensity
    from scaling.simulate import Simulation as Simulation
    from scaling.simulate import simulate as simulate
    from scaling.sweep import run_sweep as run_sweep
    from scaling.temperature import TemperatureReport as TemperatureReport
    from scaling.temperature import head_temperatures as head_temperatures
    from scaling.tensors import Layer as Layer
    from scaling.tensors import Tensors as Tensors
    from scaling.tensors import read_tensors as read_tensors

# Loaded on first use: the command line answers --help, and the exact values their questions, without JAX.
_HOME = {
    "FixedClusters": "scaling.context",
    "GeometricClusters": "scaling.context",
    "Independent": "scaling.context",
    "MovingAverage": "scaling.context",
    "Rotary": "scaling.context",
    "Subsphere": "scaling.context",
    "LogDensity": "scaling.density",
    "Mixture": "scaling.density",
    "ProjectedNormal": "scaling.density",
    "Quadratic": "scaling.density",
    "SphericalCap": "scaling.density",
    "Uniform": "scaling.density",
    "VonMisesFisher": "scaling.density",
    "evolve": "scaling.dynamics",
    "Estimate": "scaling.estimate",
    "critical_beta": "scaling.exact",
    "expected": "scaling.exact",
    "expected_limit": "scaling.exact",
    "mean_field": "scaling.exact.mean_field",
    "mean_field_covariance": "scaling.exact.mean_field",
    "post_ln": "scaling.postln",
    "output_field": "scaling.field",
    "PhaseLaw": "scaling.rope",
    "Rope": "scaling.rope",
    "log_orbit_intensity": "scaling.rope",
    "Simulation": "scaling.simulate",
    "simulate": "scaling.simulate",
    "run_sweep": "scaling.sweep",
    "TemperatureReport": "scaling.temperature",
    "head_temperatures": "scaling.temperature",
    "Layer": "scaling.tensors",
    "Tensors": "scaling.tensors",
    "read_tensors": "scaling.tensors",
}
# Modules to reach into.
_PARTS = (
    "context", "density", "exact", "figure", "heat", "law", "regime", "rope", "statistic", "tail", "temperature", "tensors",
)  # fmt: skip
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f"scaling.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'scaling' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    """The import of a submodule binds its name in the package; `simulate` must stay the function, whoever imports the file
    first."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
