"""The empirical figures of "Sink vs. diagonal patterns" for one model: `measure` a sequence, then draw; a function a figure,
which returns the figure of matplotlib."""

from toyblocks.figure.model.attention import labels as labels
from toyblocks.figure.model.attention import matrices as matrices
from toyblocks.figure.model.attention import patterns as patterns
from toyblocks.figure.model.attention import remark_c4 as remark_c4
from toyblocks.figure.model.attention import scores as scores
from toyblocks.figure.model.heads import against_uniformity as against_uniformity
from toyblocks.figure.model.heads import agreement as agreement
from toyblocks.figure.model.heads import changes as changes
from toyblocks.figure.model.heads import deviating as deviating
from toyblocks.figure.model.heads import errors as errors
from toyblocks.figure.model.heads import examples as examples
from toyblocks.figure.model.heads import regimes as regimes
from toyblocks.figure.model.heads import relative_change as relative_change
from toyblocks.figure.model.heads import sinks as sinks
from toyblocks.figure.model.measure import measure as measure
from toyblocks.figure.model.measure import shortened as shortened
from toyblocks.figure.model.smoothing import by_source as by_source
from toyblocks.figure.model.smoothing import components as components
from toyblocks.figure.model.smoothing import contexts as contexts
from toyblocks.figure.model.smoothing import layers as layers
from toyblocks.figure.model.smoothing import steps as steps
from toyblocks.figure.model.tokens import cosines as cosines
from toyblocks.figure.model.tokens import value_ranks as value_ranks
