"""Set-up of the test session.

It must not import `scaling`: the jaxtyping hook (pyproject.toml, addopts) can only check what is imported after it.
"""

import os

os.environ["MPLBACKEND"] = "Agg"
os.environ.setdefault("JAX_ENABLE_X64", "0")

import hypothesis
import jax
import pytest

from tests import stat

# Derandomised: a run of the suite is reproducible, and continuous integration never fails on an example nobody can see again.
hypothesis.settings.register_profile("suite", deadline=None, max_examples=50, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("suite")

_workers_used = 0


@pytest.fixture
def rng() -> jax.Array:
    """A fixed PRNG key. A failing statistical test is a bug to find, not a seed to change."""
    return jax.random.key(20240917, impl="threefry2x32")


def shares_used() -> int:
    """Shares of the false-alarm budget used by this process and, under pytest-xdist, by its workers."""
    return stat.shares_used() + _workers_used


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Adds up what the workers of pytest-xdist used."""
    global _workers_used
    _workers_used += getattr(node, "workeroutput", {}).get("shares_used", 0)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session, exitstatus):
    """Fails the session that took more shares than the budget of `tests/stat.py` has."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["shares_used"] = stat.shares_used()
    elif shares_used() > stat.SHARES and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    """Reports the shares used."""
    over = "; OVER BUDGET: merge calls into vectors, or raise SHARES and lower LEVEL" if shares_used() > stat.SHARES else ""
    terminalreporter.write_line(f"statistical assertions: {shares_used()} of {stat.SHARES} shares of {stat.LEVEL:g}{over}")
