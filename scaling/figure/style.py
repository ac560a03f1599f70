"""What all figures share: type sizes, colours that stay apart in grey, captions in lines, and the files that a figure leaves."""

import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke

if TYPE_CHECKING:
    import xarray

WIDTH = 7.2  # inches: two columns of a paper
COLUMN = 3.5  # inches: one column
DPI = 200
# Luminance falls from the first to the last, so that a grey print keeps them apart; line styles differ as well.
LIGHT, MIDDLE, DARK = "#a6c8e0", "#d95f02", "#08306b"
HEAT = "viridis"  # luminance rises with the value
_PARAMETERS: dict[Any, Any] = {
    "font.size": 8.5,
    "axes.labelsize": 9,
    "axes.titlesize": 9,
    "legend.fontsize": 7.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "mathtext.fontset": "stix",
    "axes.linewidth": 0.7,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text
    "savefig.dpi": DPI,
}


@contextmanager
def style() -> Iterator[None]:
    """The settings of matplotlib that figures are drawn with; those of the caller are back afterwards."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_PARAMETERS)
        yield


def halo(width: float = 2.6, color: str = "white") -> list[Any]:
    """Path effects that set a line off from a coloured ground."""
    return [Stroke(linewidth=width, foreground=color), Normal()]


def letter(axes: Axes, text: str) -> None:
    """Puts a panel letter above the upper left corner."""
    axes.set_title(text, loc="left", fontweight="bold")


def wrapped(text: str, *, hyphens: bool = True) -> str:
    """A caption in lines of up to 110 columns, which break after hyphens, too, unless told otherwise. Paragraphs are what blank
    lines separate; within one, any white space is as good as another."""
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(textwrap.fill(" ".join(part.split()), 110, break_on_hyphens=hyphens) for part in paragraphs)


def save_at(figure: Figure, data: "xarray.Dataset", caption: str, path: Path, name: str) -> list[Path]:
    """Writes the image alone to a `path` that ends in .png or .pdf, and to any other what `save` writes, making the directory.
    Returns the paths. Raises `ValueError` where the file system refuses."""
    try:
        if path.suffix not in (".png", ".pdf") or path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            return save(figure, data, caption, path, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Software": None} if path.suffix == ".png" else {"CreationDate": None, "Title": name}
        figure.savefig(path, metadata=metadata)
    except OSError as error:
        raise ValueError(f"Argument `figure` must be writable, but '{path}' is not ({error.strerror or error}).") from error
    return [path]


def save(figure: Figure, data: "xarray.Dataset", caption: str, out: Path, name: str) -> list[Path]:
    """Writes NAME.png, .pdf, .nc and .txt to the directory `out` and returns their paths. The same input gives the same bytes."""
    png, pdf, nc, txt = (out / f"{name}.{suffix}" for suffix in ("png", "pdf", "nc", "txt"))
    figure.savefig(png, metadata={"Software": None})
    figure.savefig(pdf, metadata={"CreationDate": None, "Title": name})
    # Bytes first: SciPy's writer would leave half a file open where the disk says no.
    nc.write_bytes(bytes(data.to_netcdf(engine="scipy")))
    txt.write_text(f"{caption}\n", encoding="utf-8")
    return [png, pdf, nc, txt]
