"""Rotary position embedding: frequencies, rotations, and the orbit of a query under them."""

from scaling.rope.frequencies import AbstractFrequencies as AbstractFrequencies
from scaling.rope.frequencies import FractionsOfATurn as FractionsOfATurn
from scaling.rope.frequencies import Geometric as Geometric
from scaling.rope.frequencies import GivenFrequencies as GivenFrequencies
from scaling.rope.frequencies import Yarn as Yarn
from scaling.rope.pairing import to_half_split as to_half_split
from scaling.rope.pairing import to_interleaved as to_interleaved
from scaling.rope.phase_law import PhaseLaw as PhaseLaw
from scaling.rope.phase_law import birkhoff_mean as birkhoff_mean
from scaling.rope.phase_law import empirical_mean as empirical_mean
from scaling.rope.phase_law import log_orbit_intensity as log_orbit_intensity
from scaling.rope.rotary import Rope as Rope
from scaling.rope.search import search_relations as search_relations
from scaling.rope.subgroup import Subgroup as Subgroup
from scaling.rope.turns import Position as Position
from scaling.rope.turns import Turns as Turns
