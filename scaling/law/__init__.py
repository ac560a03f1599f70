"""The theorems on the weights as objects: what each predicts, and whether it holds at a row."""

from scaling.law.agreement import LAWS as LAWS
from scaling.law.agreement import laws_within as laws_within
from scaling.law.base import AbstractLaw as AbstractLaw
from scaling.law.base import log_window as log_window
from scaling.law.critical import Critical as Critical
from scaling.law.random_energy import Crossover as Crossover
from scaling.law.random_energy import RandomEnergy as RandomEnergy
from scaling.law.random_energy import crossover as crossover
from scaling.law.random_energy import local_exponent as local_exponent
from scaling.law.subcritical import Subcritical as Subcritical
from scaling.law.supercritical import Supercritical as Supercritical
