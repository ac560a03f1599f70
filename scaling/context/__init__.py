"""Contexts: the joint law of the keys of one attention row. To add one, write a class in a file of its own here."""

from scaling.context.base import AbstractContext as AbstractContext
from scaling.context.base import query_of as query_of
from scaling.context.clusters import FixedClusters as FixedClusters
from scaling.context.clusters import GeometricClusters as GeometricClusters
from scaling.context.independent import Independent as Independent
from scaling.context.independent import as_context as as_context
from scaling.context.moving_average import MovingAverage as MovingAverage
from scaling.context.rotary import Rotary as Rotary
from scaling.context.subsphere import Subsphere as Subsphere
