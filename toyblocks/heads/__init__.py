"""What the heads of a real model do, from the tensors of its attention layers: sections 3-5 of "Sink vs. diagonal patterns".

 tensors -> pattern (one pass, no matrix [n n]) -> label
         -> update (Theorem 5.1)                          -> report -> record
"""

from toyblocks.heads.label import PATTERNS as PATTERNS
from toyblocks.heads.label import Masses as Masses
from toyblocks.heads.label import Thresholds as Thresholds
from toyblocks.heads.label import label as label
from toyblocks.heads.label import uniform_masses as uniform_masses
from toyblocks.heads.pattern import Pattern as Pattern
from toyblocks.heads.pattern import pattern as pattern
from toyblocks.heads.record import Head as Head
from toyblocks.heads.record import HeadReport as HeadReport
from toyblocks.heads.record import LayerSummary as LayerSummary
from toyblocks.heads.report import label_heads as label_heads
