"""What section 7 and Appendix D prove about the costs, as printed and corrected; lower bounds on the sink's MLP."""

from scaling._check import reject
from toyblocks.bound.backcopy import FORMS as FORMS
from toyblocks.bound.backcopy import BackcopyBound as BackcopyBound
from toyblocks.bound.backcopy import IdentityCosts as IdentityCosts
from toyblocks.bound.backcopy import backcopy_bound
from toyblocks.bound.backcopy import first_context_length as first_context_length
from toyblocks.bound.backcopy import identity_costs as identity_costs
from toyblocks.bound.grouped import GroupedBound as GroupedBound
from toyblocks.bound.grouped import grouped_bound
from toyblocks.bound.mlp import mlp_lower as mlp_lower
from toyblocks.task import AbstractTask, Backcopy, Grouped, checked_kappa, require_task


def bound(task: AbstractTask, kappa: float | int = 10.0) -> BackcopyBound | GroupedBound:
    """The theorems' bounds on the costs of both patterns, at smallest margin kappa. Raises `ValueError` for kappa outside
    [1e-100, 1e100] and a task that no theorem is about."""
    require_task(task)
    margin = checked_kappa(kappa)
    if isinstance(task, Backcopy):
        return backcopy_bound(task, margin)
    if isinstance(task, Grouped):
        return grouped_bound(task, margin)
    reject("task", "be a Backcopy or a Grouped task", task.name)
