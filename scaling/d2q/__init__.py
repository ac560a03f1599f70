"""D2Q laws: the distribution of a key's distance to the query, T = 1 - <q, x>."""

from scaling.d2q.base import AbstractD2Q as AbstractD2Q
from scaling.d2q.cap import CapD2Q as CapD2Q
from scaling.d2q.mixture import MixtureD2Q as MixtureD2Q
from scaling.d2q.numeric import NumericD2Q as NumericD2Q
from scaling.d2q.quadratic import quadratic_d2q as quadratic_d2q
from scaling.d2q.uniform import UniformD2Q as UniformD2Q
from scaling.d2q.vmf import vmf_d2q as vmf_d2q
