"""A signed distance field on a regular grid: exact at the nodes, trilinear in between."""

from dataclasses import dataclass

import numpy as np

DEFAULT_VOXELS = 400_000
DEFAULT_PADDING = 0.010
# The error between nodes is about half a spacing at thin shells and sharp edges. Above this spacing (m) a
# large object may spend up to twice the voxels it was given.
_COARSE = 0.0019
_MIN_NODES = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class SdfGrid:
    """Signed distances and their gradients at the nodes origin + spacing * (i, j, k).

    Plain arrays, so that a compiled kernel can read them as they are.
    """

    origin: np.ndarray
    """(3,) float64, m. Node (0, 0, 0)."""
    spacing: float
    """Distance between neighbouring nodes, the same along x, y and z, m."""
    values: np.ndarray
    """(nx, ny, nz) float32, m. Exact signed distance of each node to the mesh, negative inside."""
    gradients: np.ndarray
    """(nx, ny, nz, 3) float32. Exact unit gradient of that distance at each node."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of nodes along x, y and z."""
        nx, ny, nz = self.values.shape
        return nx, ny, nz

    @property
    def upper(self) -> np.ndarray:
        """(3,) float64, m. The last node, opposite to `origin`."""
        return self.origin + self.spacing * (np.array(self.shape) - 1)

    def query(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Signed distances and gradients at points, interpolated between the nodes.

        With q the point p clamped to the box of the grid, and f, g the trilinear interpolation of the stored
        values and gradients at q, s = q - f g / |g| is the surface point nearest to q. Then
          value = f,  gradient = g             inside the box,
          value = |p - s|,  gradient = (p - s) / |p - s|   outside of it.
        Outside, the value is continuous and, s being a point of the surface, never too small but for the
        error of the grid. Inside, the gradient is that of the exact distance, interpolated; it is shorter
        than 1 where the nearest side of the object changes within a cell, and differs there from the
        derivative of the value.

        Args:
          points: (..., 3) float, m, in the frame of the grid. Not finite: the result is NaN.

        Returns:
          Values (...,) float64, m, and gradients (..., 3) float64.
        """
        points = np.asarray(points, dtype=float)
        flat = points.reshape(-1, 3)
        clamped = np.clip(flat, self.origin, self.upper)

        position = (np.nan_to_num(clamped, nan=0.0) - self.origin) / self.spacing
        cell = np.clip(position.astype(np.int64), 0, np.array(self.shape) - 2)
        t = position - cell
        values = np.zeros(len(flat))
        gradients = np.zeros((len(flat), 3))
        for corner in np.ndindex(2, 2, 2):
            weight = np.prod(np.where(corner, t, 1.0 - t), axis=1)
            i, j, k = (cell + corner).T
            values += weight * self.values[i, j, k]
            gradients += weight[:, None] * self.gradients[i, j, k]

        outside = np.any(flat != clamped, axis=1)
        g = gradients[outside]
        g = g / np.maximum(np.linalg.norm(g, axis=1, keepdims=True), 1e-9)
        spoke = flat[outside] - clamped[outside] + values[outside, None] * g
        values[outside] = np.linalg.norm(spoke, axis=1)
        gradients[outside] = spoke / values[outside, None]
        undefined = ~np.all(np.isfinite(flat), axis=1)
        values[undefined], gradients[undefined] = np.nan, np.nan
        return values.reshape(points.shape[:-1]), gradients.reshape(points.shape)


def build_sdf(
    vertices: np.ndarray, faces: np.ndarray, *, voxels: int = DEFAULT_VOXELS, padding: float = DEFAULT_PADDING
) -> SdfGrid:
    """The signed distance field of a closed mesh on a grid of about `voxels` nodes around it.

    The spacing h solves prod_a (size_a / h + 1) = voxels over the padded bounding box, so a slender object
    gets a finer grid than a bulky one of the same length. Between nodes the error is at most sqrt(3)/2 h, at
    a needle's tip; at most h/2 at a shell thinner than h; and far smaller where the surface is smooth.

    Args:
      vertices: (V, 3) float, m.
      faces: (F, 3) int, a closed surface, counter-clockwise seen from outside.
      voxels: Number of nodes to spend. A large object may take up to twice as many to keep h under 1.9 mm.
      padding: Space around the mesh that the grid covers, m. At least one spacing is used.
    """
    # Warp takes a third of a second to import; whoever only reads a grid does not need it.
    from fistful.geometry.mesh_distance import grid_distance

    if voxels < _MIN_NODES**3:
        raise ValueError(f"voxels = {voxels} is too few for a distance field; use at least {_MIN_NODES**3}")
    vertices = np.asarray(vertices, dtype=float)
    lower, upper = vertices.min(axis=0), vertices.max(axis=0)
    size = upper - lower + 2 * padding
    spacing = _spacing(size, voxels)
    if spacing > _COARSE:
        spacing = max(_COARSE, _spacing(size, 2 * voxels))
    padding = max(padding, 1.01 * spacing)
    nx, ny, nz = (int(n) for n in np.ceil((upper - lower + 2 * padding) / spacing) + 1)
    shape = (nx, ny, nz)
    # Node counts are whole, so the grid is a little larger than the box: centre it.
    origin = (lower + upper) / 2 - spacing * (np.array(shape) - 1) / 2
    values, gradients = grid_distance(vertices, faces, origin=origin, spacing=spacing, shape=shape)
    return SdfGrid(
        origin=origin,
        spacing=spacing,
        values=values.astype(np.float32),
        gradients=gradients.astype(np.float32),
    )


def _spacing(size: np.ndarray, voxels: int) -> float:
    """The spacing at which a box of the given size (3,) holds `voxels` nodes, by bisection."""
    low, high = float(size.max()) / voxels, float(size.max())
    for _ in range(60):
        middle = (low * high) ** 0.5
        if np.prod(size / middle + 1) > voxels:
            low = middle
        else:
            high = middle
    return high
