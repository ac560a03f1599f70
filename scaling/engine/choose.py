"""The choice of an engine: by name, or "auto" with its reason."""

from scaling._check import known
from scaling.engine.base import AbstractEngine, Request
from scaling.engine.extremes import Extremes
from scaling.engine.keys import Keys
from scaling.engine.poisson import Poisson

_ENGINES: dict[str, AbstractEngine] = {engine.name: engine for engine in (Keys(), Extremes(), Poisson())}


def engine_names() -> list[str]:
    """The names that `choose` knows."""
    return ["auto", *_ENGINES]


def choose(name: str, request: Request) -> tuple[AbstractEngine, str]:
    """The engine that will serve the request, and why.

    Raises `ValueError` if the name is unknown or the engine cannot serve it exactly.
    """
    known("engine", name, engine_names())
    if name != "auto":
        reason = _ENGINES[name].refusal(request)
        if reason is not None:
            raise ValueError(f"Argument `engine` must serve the request exactly, but was {name!r}: {reason}.")
        return _ENGINES[name], f"`{name}` was asked for"
    refused = _ENGINES["extremes"].refusal(request)
    if refused is None:
        return _ENGINES["extremes"], "independent keys: only the nearest keys and the law of the rest are drawn"
    reason = _ENGINES["keys"].refusal(request)
    if reason is not None:
        raise ValueError(f"Argument `engine` must serve the request exactly, but no engine does: {refused}; {reason}.")
    return _ENGINES["keys"], f"every key is drawn, since {refused}"
