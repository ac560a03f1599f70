"""Densities of one key on the sphere, with respect to surface measure."""

from scaling.density.base import AbstractDensity as AbstractDensity
from scaling.density.cap import SphericalCap as SphericalCap
from scaling.density.log_density import LogDensity as LogDensity
from scaling.density.mixture import Mixture as Mixture
from scaling.density.projected_normal import ProjectedNormal as ProjectedNormal
from scaling.density.quadratic import Quadratic as Quadratic
from scaling.density.uniform import Uniform as Uniform
from scaling.density.vmf import VonMisesFisher as VonMisesFisher
