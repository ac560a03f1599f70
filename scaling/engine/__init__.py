"""Engines: ways to draw the points of an attention row."""

from scaling.engine.base import AbstractEngine as AbstractEngine
from scaling.engine.base import Request as Request
from scaling.engine.base import Samples as Samples
from scaling.engine.choose import choose as choose
from scaling.engine.choose import engine_names as engine_names
from scaling.engine.extremes import Extremes as Extremes
from scaling.engine.keys import Keys as Keys
from scaling.engine.poisson import Poisson as Poisson
