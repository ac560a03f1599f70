"""The heat equation on S^2 run backward, and the flow of particles that follows it: what layers of attention tend to.

By Proposition 4.4 of "Scaling Limits of Long-Context Transformers" a layer moves every token by (step / beta) grad log rho. A
cloud in which all tokens do so has a density with rho_t' = -div(rho grad log rho) = -Laplacian rho: the heat equation backward,
at time layer * step / beta. In spherical harmonics a coefficient of degree l grows as e^{l (l + 1) t}.

A solution exists only where the coefficients decay faster than that. Those of exp(x_1 x_2) decay as 1 / (l / 2)!, so it has none
at any t > 0: what is solved is the equation for a density cut off at a band limit, chosen so that what is cut is smallest at the
last time asked for. Attention at a finite beta has no such limit: it sees the density through a window, and degree l grows no
faster than `attention_window` lets it (`mean_field_spectra`).

Everything is float64 on the host. Transforms are by `s2fft`, an extra: pip install "attention-scaling-limits[heat]".
"""

from scaling.heat.equation import Spectrum as Spectrum
from scaling.heat.equation import attention_window as attention_window
from scaling.heat.equation import cloud_spectrum as cloud_spectrum
from scaling.heat.equation import positive_until as positive_until
from scaling.heat.equation import spectrum as spectrum
from scaling.heat.particles import flow as flow
from scaling.heat.particles import mean_field_spectra as mean_field_spectra
