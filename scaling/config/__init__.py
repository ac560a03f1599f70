"""Sweep configurations: what a sweep file may say."""

from scaling.config.fields import Range as Range
from scaling.config.sweep import DTYPES as DTYPES
from scaling.config.sweep import MAX_SEED as MAX_SEED
from scaling.config.sweep import SweepConfig as SweepConfig
