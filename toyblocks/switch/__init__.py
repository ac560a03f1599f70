"""When a sink is the only way to switch a head off: section 6 and Appendix C of "Sink vs. diagonal patterns"."""

from toyblocks.switch.chain import CopyChain as CopyChain
from toyblocks.switch.chain import Spanned as Spanned
from toyblocks.switch.chain import collector_draws as collector_draws
from toyblocks.switch.chain import collector_law as collector_law
from toyblocks.switch.chain import copies_to_span as copies_to_span
from toyblocks.switch.chain import embedded as embedded
from toyblocks.switch.chain import support_ranks as support_ranks
from toyblocks.switch.chain import uniform_chain as uniform_chain
from toyblocks.switch.conditions import Cancellation as Cancellation
from toyblocks.switch.conditions import Conditions as Conditions
from toyblocks.switch.conditions import cancellation as cancellation
from toyblocks.switch.conditions import conditions as conditions
