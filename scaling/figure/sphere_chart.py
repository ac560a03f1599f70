"""Charts of the sphere S^2 for figures: where a picture's pixels lie on the sphere, and where points of the sphere lie in it."""

import numpy as np
from jaxtyping import Float

Grid = Float[np.ndarray, "rows columns"]
GridPoints = Float[np.ndarray, "rows columns 3"]
Points = Float[np.ndarray, "*points 3"]
Coordinates = Float[np.ndarray, "*points"]


def pixel_centres(low: float | int, high: float | int, count: int) -> Float[np.ndarray, " count"]:
    """The centres of `count` pixels of equal width from `low` to `high`, in their units."""
    return low + (np.arange(count) + 0.5) * ((high - low) / count)


def mollweide_points(x: Coordinates, y: Coordinates) -> Points:
    """The points of S^2 at the coordinates x in [-2, 2], y in [-1, 1] of the Mollweide map, dimensionless.

    The map fills the ellipse (x/2)^2 + y^2 <= 1, and equal areas of it are equal areas of the sphere. The first axis is in its
    middle, the second to the right of it, the third at the top. Coordinates beside the ellipse give the edge point of their row,
    so that a pixel on the edge has a value.
    """
    auxiliary = np.arcsin(y)
    sine = (2 * auxiliary + np.sin(2 * auxiliary)) / np.pi
    half_width = 2 * np.sqrt(np.maximum(1 - y * y, 1e-300))
    longitude = np.pi * np.clip(x / half_width, -1, 1)
    cosine = np.sqrt(np.maximum(1 - sine * sine, 0))
    return np.stack([cosine * np.cos(longitude), cosine * np.sin(longitude), sine], axis=-1)


def mollweide_coordinates(points: Points) -> tuple[Coordinates, Coordinates]:
    """The coordinates (x, y) of points of S^2 in the map of `mollweide_points`, its inverse, to about 1e-8."""
    target = np.pi * np.clip(points[..., 2], -1, 1)
    low, high = np.full_like(target, -np.pi / 2), np.full_like(target, np.pi / 2)
    for _ in range(50):  # bisection: Newton's method crawls near the poles
        middle = (low + high) / 2
        below = 2 * middle + np.sin(2 * middle) < target
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    longitude = np.arctan2(points[..., 1], points[..., 0])
    return 2 * longitude / np.pi * np.cos(low), np.sin(low)


def on_mollweide_map(x: Coordinates, y: Coordinates) -> np.ndarray:
    """Whether these coordinates lie in the ellipse of the map."""
    return (x / 2) ** 2 + y**2 <= 1


def east_and_north(center: Float[np.ndarray, "3"]) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
    """The unit tangent vectors at a point of S^2 off the third axis that point right and up in the Mollweide map's middle."""
    east = np.cross([0.0, 0.0, 1.0], center)
    east = east / np.linalg.norm(east)
    return east, np.cross(center, east)


def geodesic_points(center: Float[np.ndarray, "3"], u: Coordinates, v: Coordinates) -> Points:
    """The points exp_center(u east + v north) of S^2, u and v in radians: geodesics through the centre are straight lines with
    their true lengths (the azimuthal equidistant chart)."""
    east, north = east_and_north(center)
    angle = np.hypot(u, v)
    radial = np.sinc(angle / np.pi)  # sin(angle) / angle
    return np.cos(angle)[..., None] * center + (radial * u)[..., None] * east + (radial * v)[..., None] * north
