"""The benchmarks run: a tiny pass over all of them prints the table. What they measure is no test."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={**os.environ, "JAX_ENABLE_X64": "0"},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_smoke_mode_prints_the_table(tmp_path):
    report = tmp_path / "report.json"
    done = benchmarks("--smoke", "--json", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "smoke, not a measurement" in done.stdout and "MISSED" not in done.stdout
    written = json.loads(report.read_text())
    assert written["smoke"] and not written["failed"] and written["machine"]["jax"]
    lines = {m["name"]: m for m in written["measurements"]}
    assert len(lines) == len(written["measurements"]) > 20
    assert all(name in done.stdout for name in lines)
    assert all(m["met"] is None for m in lines.values())
    for name in ("extremes", "keys", "Figure 3 left", "float32", "random", "scaling --help", "scaling simulate", "exact"):
        assert any(line.startswith(name) for line in lines), name


def test_only_known_names():
    done = benchmarks("--only", "extrems")
    assert done.returncode == 2 and "extremes" in done.stderr
