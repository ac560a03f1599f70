"""When attention makes tokens alike: section 5 and Appendix B of "Sink vs. diagonal patterns", also on tensors of a real head.

`rho` measures; `estimate`, `rho_hat` and `regime` are Theorem 5.1; `keeping` and `turning` are Propositions B.1 and B.3.
"""

from toyblocks.oversmoothing.construction import keeping as keeping
from toyblocks.oversmoothing.construction import layer as layer
from toyblocks.oversmoothing.construction import moving as moving
from toyblocks.oversmoothing.construction import span_rotation as span_rotation
from toyblocks.oversmoothing.construction import turning as turning
from toyblocks.oversmoothing.similarity import interpolate as interpolate
from toyblocks.oversmoothing.similarity import mean_norm as mean_norm
from toyblocks.oversmoothing.similarity import rescaling as rescaling
from toyblocks.oversmoothing.similarity import rho as rho
from toyblocks.oversmoothing.similarity import rho_after as rho_after
from toyblocks.oversmoothing.similarity import uniformity as uniformity
from toyblocks.oversmoothing.similarity import uniformity_of_entropies as uniformity_of_entropies
from toyblocks.oversmoothing.theorem import Assessment as Assessment
from toyblocks.oversmoothing.theorem import Regime as Regime
from toyblocks.oversmoothing.theorem import TokenLaw as TokenLaw
from toyblocks.oversmoothing.theorem import Traces as Traces
from toyblocks.oversmoothing.theorem import assess as assess
from toyblocks.oversmoothing.theorem import estimate as estimate
from toyblocks.oversmoothing.theorem import expected_product as expected_product
from toyblocks.oversmoothing.theorem import pair_moments as pair_moments
from toyblocks.oversmoothing.theorem import regime as regime
from toyblocks.oversmoothing.theorem import rho_hat as rho_hat
from toyblocks.oversmoothing.theorem import token_law as token_law
