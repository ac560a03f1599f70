"""Fixtures of the tests of `toyblocks`."""

import jaxtyping
import pytest


@pytest.fixture
def unchecked():
    """Calls as users make them: without the checks of types in signatures that the suite adds."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
