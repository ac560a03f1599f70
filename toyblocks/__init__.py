"""Single-block transformers that switch attention off: what a sink costs, what a diagonal pattern costs; the geometry behind it,
and what the heads of real models do.

Source of the theorems: "Sink vs. diagonal patterns as mechanisms for attention switch and
oversmoothing prevention".
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toyblocks.block import Block as Block
    from toyblocks.block import Cost as Cost
    from toyblocks.bound import bound as bound
    from toyblocks.bound import first_context_length as first_context_length
    from toyblocks.bound import identity_costs as identity_costs
    from toyblocks.bound import mlp_lower as mlp_lower
    from toyblocks.construct import construct as construct
    from toyblocks.evaluate import Evaluation as Evaluation
    from toyblocks.evaluate import evaluate as evaluate
    from toyblocks.export import export as export
    from toyblocks.heads import HeadReport as HeadReport
    from toyblocks.heads import label_heads as label_heads
    from toyblocks.optimum import Optimum as Optimum
    from toyblocks.optimum import optimum as optimum
    from toyblocks.representability import representability as representability
    from toyblocks.task import Backcopy as Backcopy
    from toyblocks.task import Grouped as Grouped
    from toyblocks.train import Trained as Trained
    from toyblocks.train import train as train

    backcopy, grouped = Backcopy, Grouped

# Loaded on first use: the command line answers --help without JAX.
_HOME = {
    "Backcopy": ("toyblocks.task", "Backcopy"),
    "Block": ("toyblocks.block", "Block"),
    "Cost": ("toyblocks.block", "Cost"),
    "Evaluation": ("toyblocks.evaluate", "Evaluation"),
    "Grouped": ("toyblocks.task", "Grouped"),
    "HeadReport": ("toyblocks.heads", "HeadReport"),
    "Optimum": ("toyblocks.optimum", "Optimum"),
    "Trained": ("toyblocks.train", "Trained"),
    "backcopy": ("toyblocks.task", "Backcopy"),  # the tasks by the names that the command line has
    "bound": ("toyblocks.bound", "bound"),
    "construct": ("toyblocks.construct", "construct"),
    "evaluate": ("toyblocks.evaluate", "evaluate"),
    "export": ("toyblocks.export", "export"),
    "first_context_length": ("toyblocks.bound", "first_context_length"),
    "grouped": ("toyblocks.task", "Grouped"),
    "identity_costs": ("toyblocks.bound", "identity_costs"),
    "label_heads": ("toyblocks.heads", "label_heads"),
    "mlp_lower": ("toyblocks.bound", "mlp_lower"),
    "optimum": ("toyblocks.optimum", "optimum"),
    "representability": ("toyblocks.representability", "representability"),
    "train": ("toyblocks.train", "train"),
}
_PARTS = ("figure", "heads", "oversmoothing", "rope", "switch", "task")  # modules to reach into
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f"toyblocks.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'toyblocks' has no attribute {name!r}")
    module, attribute = _HOME[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    """The import of a submodule binds its name in the package; `evaluate` must stay the function, whoever imports the file
    first."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
