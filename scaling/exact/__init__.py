"""Expected values without randomness: finite-n quadrature, its critical limit, and the critical inverse temperature."""

from scaling.exact.critical import critical_beta as critical_beta
from scaling.exact.critical import hazard_beta as hazard_beta
from scaling.exact.critical import local_slope as local_slope
from scaling.exact.critical import power_law as power_law
from scaling.exact.expected import Expected as Expected
from scaling.exact.expected import expected as expected
from scaling.exact.expected import expected_limit as expected_limit
from scaling.exact.ordered import top_weight as top_weight
