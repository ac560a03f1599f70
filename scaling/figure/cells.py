"""The exact values of a figure, kept in a file of their own: computed once, read ever after."""

import json
import os
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import xarray


def load_or_compute(
    path: Path, settings: Mapping[str, Any], compute: Callable[[], xarray.Dataset], keep: bool = False
) -> xarray.Dataset:
    """The dataset in the netCDF file `path` if it has these settings, else that of `compute`, which is written there.

    Raises `ValueError` for a file that cannot be read, is another one, or whose numbers do not have their checksum; with `keep`
    for one of other settings, too, with their names, in place of computing it anew.
    """
    wanted = json.dumps(settings, sort_keys=True)
    if path.exists():
        data = _read(path)
        if data.attrs["settings"] == wanted:
            return data
        if keep:
            _refuse(path, json.loads(data.attrs["settings"]), json.loads(wanted))
    data = compute()
    data.attrs = {"settings": wanted, "checksum": _checksum(data)}
    partial = path.with_suffix(".partial")
    try:
        partial.write_bytes(bytes(data.to_netcdf(engine="scipy")))
        os.replace(partial, path)
    except OSError as error:
        raise ValueError(f"Argument `store` must be writable, but '{path}' is not ({error.strerror or error}).") from error
    return _read(path)


def variable(dims: tuple[str, ...], values: Any, about: str, units: str = "1") -> tuple:
    """A variable of a dataset with what it is; dimensionless unless said otherwise."""
    return dims, np.asarray(values, dtype=np.float64), {"long_name": about, "units": units}


def number(value: float) -> str:
    """A number as captions have it: 1e6, not 1e+06."""
    return re.sub(r"e\+0*", "e", f"{value:.4g}")


def context_lengths(start: float, stop: float, num: int) -> np.ndarray:
    """Integral context lengths [num], evenly spaced on a logarithmic axis as nearly as whole numbers can be."""
    return np.unique(np.round(np.geomspace(start, stop, num)))


def _read(path: Path) -> xarray.Dataset:
    try:
        data = xarray.load_dataset(path, engine="scipy")
        whole = int(data.attrs["checksum"]) == _checksum(data) and "settings" in data.attrs
    # SciPy's reader answers bytes that are no netCDF with whatever error they lead it to.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"Argument `store` must hold values of this figure, but '{path}' cannot be read ({reason}).") from error
    if not whole:
        raise ValueError(f"Argument `store` must hold whole files, but '{path}' is corrupt: remove it to compute it again.")
    return data


def _refuse(path: Path, found: Any, wanted: dict[str, Any]) -> NoReturn:
    found = found if isinstance(found, dict) else {}
    differ = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    listed = ", ".join(f"{name} {found.get(name)} instead of {wanted.get(name)}" for name in differ)
    raise ValueError(f"Argument `store` must hold values of the same settings, but '{path}' has {listed}.")


def _checksum(data: xarray.Dataset) -> int:
    """Of all numbers and their names, in an order and a byte order of its own; below 2^31, which netCDF 3 can hold."""
    total = 0
    for name in sorted(map(str, data.variables)):
        values = np.ascontiguousarray(data[name].values, dtype=">f8")
        total = zlib.crc32(name.encode() + str(values.shape).encode() + values.tobytes(), total)
    return total >> 1
