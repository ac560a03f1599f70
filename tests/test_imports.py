"""What importing the package does to a process: nothing that could be seen from outside."""

import ast
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def at_import(node: ast.AST):
    """The nodes of a module that are not inside a function."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from at_import(child)


def run(code: str) -> None:
    """Runs `code` in a fresh interpreter with the repository on its path."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    result = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr


def test_import_starts_no_backend_and_changes_no_config():
    run(
        """
import jax
from jax._src import xla_bridge
before = dict(jax.config.values)
import scaling, toyblocks
for package in (scaling, toyblocks):
    for name in (*package._PARTS, *dir(package)):
        getattr(package, name)
assert dict(jax.config.values) == before
assert not xla_bridge.backends_are_initialized()
"""
    )


def test_import_of_every_module_starts_no_backend():
    run(
        """
import importlib, pkgutil
import jax
from jax._src import xla_bridge
before = dict(jax.config.values)
import scaling, toyblocks
for package in (scaling, toyblocks):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
assert dict(jax.config.values) == before
assert not xla_bridge.backends_are_initialized()
"""
    )


def test_import_reads_no_environment():
    # What stands outside functions runs at import; the packages may read the environment in functions only.
    readers = {"environ", "environb", "getenv"}
    found = []
    for path in sorted([*(ROOT / "scaling").rglob("*.py"), *(ROOT / "toyblocks").rglob("*.py")]):
        for node in at_import(ast.parse(path.read_text())):
            if (isinstance(node, ast.Attribute) and node.attr in readers) or (isinstance(node, ast.Name) and node.id in readers):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found


def test_help_imports_nothing_heavy():
    run(
        """
import contextlib, io, sys
import scaling.cli, toyblocks.cli
for package, command in ((scaling, "simulate"), (toyblocks, "optimum")):
    sys.argv = [package.__name__, "--help"]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        try:
            package.cli.main()
        except SystemExit as stop:
            assert stop.code in (0, None), stop.code
    assert command in shown.getvalue(), shown.getvalue()
heavy = {"cvxpy", "jax", "matplotlib", "numpy", "scipy", "xarray", "zarr"} & sys.modules.keys()
assert not heavy, heavy
"""
    )
