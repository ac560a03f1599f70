"""D2Q laws: the distribution of a key's distance to the query."""

from scaling.d2q.base import AbstractD2Q as AbstractD2Q
from scaling.d2q.uniform import UniformD2Q as UniformD2Q
