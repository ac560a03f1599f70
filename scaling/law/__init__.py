"""The theorems as objects, on the weights (section 3), on the output (section 4) and with RoPE and dependent keys (Appendix F):
what each predicts, and whether it holds at a row."""

from scaling.law.agreement import LAWS as LAWS
from scaling.law.agreement import OUTPUT_LAWS as OUTPUT_LAWS
from scaling.law.agreement import context_laws_within as context_laws_within
from scaling.law.agreement import laws_within as laws_within
from scaling.law.agreement import orbit_laws as orbit_laws
from scaling.law.agreement import output_laws_within as output_laws_within
from scaling.law.base import AbstractLaw as AbstractLaw
from scaling.law.base import log_window as log_window
from scaling.law.cluster import ClusterCritical as ClusterCritical
from scaling.law.cluster_size import AbstractClusterSize as AbstractClusterSize
from scaling.law.cluster_size import FixedSize as FixedSize
from scaling.law.cluster_size import GeometricSize as GeometricSize
from scaling.law.critical import Critical as Critical
from scaling.law.critical_output import CriticalOutput as CriticalOutput
from scaling.law.local import LocalDensity as LocalDensity
from scaling.law.off_support import OffSupportCritical as OffSupportCritical
from scaling.law.off_support import log_boundary_intensity as log_boundary_intensity
from scaling.law.orbit import OrbitCritical as OrbitCritical
from scaling.law.output import AbstractOutputLaw as AbstractOutputLaw
from scaling.law.random_energy import Crossover as Crossover
from scaling.law.random_energy import RandomEnergy as RandomEnergy
from scaling.law.random_energy import crossover as crossover
from scaling.law.random_energy import local_exponent as local_exponent
from scaling.law.residual import ResidualUpdate as ResidualUpdate
from scaling.law.residual import similarity_rate as similarity_rate
from scaling.law.subcritical import Subcritical as Subcritical
from scaling.law.subcritical_output import SubcriticalOutput as SubcriticalOutput
from scaling.law.subcritical_output import part_of as part_of
from scaling.law.supercritical import Supercritical as Supercritical
from scaling.law.supercritical_output import SupercriticalOutput as SupercriticalOutput
