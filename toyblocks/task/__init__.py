"""Tasks: tokens, patterns of attention, and the outputs that a block owes. To add one, write a final `AbstractTask`."""

from toyblocks.task.backcopy import GEOMETRIES as GEOMETRIES
from toyblocks.task.backcopy import Backcopy as Backcopy
from toyblocks.task.base import PATTERNS as PATTERNS
from toyblocks.task.base import SCALINGS as SCALINGS
from toyblocks.task.base import AbstractTask as AbstractTask
from toyblocks.task.base import Routing as Routing
from toyblocks.task.base import Situations as Situations
from toyblocks.task.base import checked_kappa as checked_kappa
from toyblocks.task.base import known_pattern as known_pattern
from toyblocks.task.base import label_error as label_error
from toyblocks.task.base import require_room as require_room
from toyblocks.task.base import require_task as require_task
from toyblocks.task.base import situations_of as situations_of
from toyblocks.task.grouped import NOISES as NOISES
from toyblocks.task.grouped import Grouped as Grouped
from toyblocks.task.grouped import effective_rank as effective_rank
