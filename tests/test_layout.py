"""The layout of the repository: what the top level holds, which module may import which, how long a file may be."""

import ast
import itertools
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("scaling", "toyblocks")

TOP_LEVEL = {
    "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE",
    "scaling", "toyblocks", "benchmarks", "tests", "notebooks", "docs",
}  # fmt: skip

# The data flow. A module imports from its own stage and from earlier ones only.
STAGES = (
    ("_check", "random"),
    ("tensors",),
    ("sphere",),
    ("density", "d2q"),
    ("context", "rope"),
    ("statistic", "attention", "postln"),
    ("field",),
    ("dynamics", "heat"),
    ("engine",),
    ("estimate", "simulate"),
    ("config", "_files", "sweep", "store"),
    ("compare", "tail", "temperature", "regime", "schedule", "verify"),
    ("figure",),
    ("cli", "__main__"),
    ("__init__",),
)
RANK = {name: rank for rank, names in enumerate(STAGES) for name in names}

# The flow of `toyblocks`, which may use any part of `scaling`.
TOY_STAGES = (
    ("task",),
    ("block",),
    ("evaluate", "rope"),
    ("oversmoothing",),
    ("hull",),
    ("representability", "switch"),
    ("heads",),
    ("construct",),
    ("bound",),
    ("optimum",),
    ("train",),
    ("export",),
    ("figure",),
    ("cli", "__main__"),
    ("__init__",),
)
TOY_RANK = {name: rank for rank, names in enumerate(TOY_STAGES) for name in names}

# Beside the flow, so that they are roads of their own to the same numbers: they see the model, and what draws or weighs keys does
# not see them.
BESIDE = ("exact", "law")
MODEL = ("_check", "random", "sphere", "density", "d2q", "rope")


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def tracked_top_level() -> set[str]:
    """Names at the top level, without dotfiles and without what builds and runs leave there (see .gitignore)."""
    leftovers = {"build", "dist", "figures", "stores", "__pycache__"}
    return {
        path.name
        for path in ROOT.iterdir()
        if not path.name.startswith(".") and path.name not in leftovers and path.suffix not in {".egg-info", ".zarr"}
    }


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, modules: set[str]) -> set[str]:
    """The modules of this repository that a file imports, anywhere in it but under `if TYPE_CHECKING`."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    found = set()
    for node in runtime_nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            names = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base for alias in node.names]
        else:
            continue
        found.update(name for name in names if name.split(".")[0] in PACKAGES)
    return found


def runtime_nodes(node: ast.AST):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from runtime_nodes(child)


def stage(module: str) -> str:
    """The part of a package that a module belongs to: `engine` for `scaling.engine.keys`, `__init__` for `scaling`."""
    return module.split(".")[1] if "." in module else "__init__"


def may_import(name: str, module: str) -> bool:
    """Whether a module may import another one."""
    if name.startswith("toyblocks"):
        importer, target = stage(name), stage(module)
        if module.startswith("scaling"):
            return True
        # What is certified knows nothing of what is constructed or trained, nor the other way round: each checks the others.
        roads = ("construct", "optimum", "train")
        return TOY_RANK[target] <= TOY_RANK[importer] and not (importer != target and {importer, target} <= set(roads))
    if module.startswith("toyblocks"):
        return False
    importer, target = stage(name), stage(module)
    if importer == target:
        return True
    if importer in BESIDE:
        return target in MODEL or (importer, target) == ("law", "exact")  # the means of the critical law are quadratures
    if target in BESIDE:
        return RANK[importer] > RANK["simulate"]
    return RANK[target] <= RANK[importer]


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """For every module of the packages, the modules of the packages that it imports."""
    files = {module_name(path): path for package in PACKAGES for path in sources(package)}
    return {name: imported(path, set(files)) for name, path in files.items()}


def test_top_level():
    assert tracked_top_level() == TOP_LEVEL


@pytest.mark.parametrize("package", ["scaling", "toyblocks", "tests", "benchmarks"])
def test_no_file_over_500_lines(package):
    long = {
        str(path.relative_to(ROOT)): lines for path in sources(package) if (lines := len(path.read_text().splitlines())) > 500
    }
    assert not long


def test_every_module_has_a_stage(imports):
    known = {"scaling": RANK.keys() | set(BESIDE), "toyblocks": TOY_RANK.keys()}
    unknown = {name for name in imports if stage(name) not in known[name.split(".")[0]]}
    assert not unknown, f"give {unknown} a place in STAGES or TOY_STAGES"


def test_imports_point_one_way(imports):
    against = [
        f"{name} imports {target}"
        for name, targets in imports.items()
        for target in targets
        if not may_import(name, target)
    ]
    assert not against


def test_imports_have_no_cycle(imports):
    # A package's __init__ gathers its modules, which may import one another through it only where nothing runs in circles.
    finished, open_ = set(), []

    def visit(name):
        assert name not in open_, " -> ".join([*open_[open_.index(name) :], name])
        if name in finished:
            return
        open_.append(name)
        for target in sorted(imports.get(name, ())):
            visit(target)
        open_.pop()
        finished.add(name)

    for name in sorted(imports):
        visit(name)


def test_private_names_stay_private():
    leaks = []
    for path in itertools.chain.from_iterable(map(sources, PACKAGES)):
        if path.name != "__init__.py":
            continue
        for node in runtime_nodes(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                leaks += [
                    f"{module_name(path)}: {alias.name}" for alias in node.names if (alias.asname or alias.name).startswith("_")
                ]
                leaks += [f"{module_name(path)}: *" for alias in node.names if alias.name == "*"]
    assert not leaks


def test_modules_do_not_use_private_names_of_others(imports):
    used = []
    for path in itertools.chain.from_iterable(map(sources, PACKAGES)):
        for node in runtime_nodes(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
                modules = {f"{node.module}.{alias.name}" for alias in node.names} & imports.keys()
                names = {alias.name for alias in node.names if f"{node.module}.{alias.name}" not in modules}
                used += [f"{module_name(path)} uses {node.module}.{name}" for name in names if name.startswith("_")]
    assert not used


def test_public_names_have_docstrings():
    bare = []
    for path in itertools.chain.from_iterable(map(sources, PACKAGES)):
        tree = ast.parse(path.read_text())
        if tree.body and not ast.get_docstring(tree):
            bare.append(f"{module_name(path)} (module)")
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            overload = any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)
            if not overload and not ast.get_docstring(node):
                bare.append(f"{module_name(path)}.{node.name}")
    assert not bare
