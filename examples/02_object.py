"""An object: what was found in the mesh, distances, surface points, mass.

    python examples/02_object.py [OBJECT]

OBJECT is a built-in name or a path to a mesh.
"""

import sys

import numpy as np

import fistful as ff


def main(name: str = "mug") -> None:
    """Print what a planner would ask of an object."""
    item = ff.load_object(name)
    print(f"{item.name}: {item.report}")
    print(f"distance grid {item.sdf.values.shape} at {1e3 * item.sdf.spacing:.2f} mm, {item.sdf_error}")

    # Half a centimetre off the surface, the distance is half a centimetre (where nothing else is nearer).
    distance, outward = item.sdf.query(item.surface_points + 0.005 * item.surface_normals)
    print(f"5 mm off the surface: {1e3 * np.median(distance):.2f} mm by the grid (median)")
    aligned = np.median(np.sum(outward * item.surface_normals, axis=1))
    print(f"its gradient against the face normals: cosine {aligned:.4f} (median)")

    mass = item.mass_properties.at_density(500)
    print(f"at 500 kg/m3: {1e3 * mass.mass:.0f} g, centre of mass {np.round(1e3 * mass.com_O, 1)} mm")
    vertices, _ = item.inflated_hull(0.2)
    width_mm = 1e3 * np.ptp(vertices, axis=0).max()
    print(f"hands start from a hull of {len(vertices)} corners, {width_mm:.0f} mm wide")


if __name__ == "__main__":
    main(*sys.argv[1:2])
