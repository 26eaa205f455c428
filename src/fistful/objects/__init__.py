"""Meshes made ready: checked, scaled, with a distance field, surface points, hull, mass and convex parts."""

from fistful.objects.inspection import MeshReport, Units
from fistful.objects.object import MassProperties, Object, SdfError, load_object, object_names
from fistful.objects.parts import ConvexParts, ErrorStats, PartsKind, convex_parts

__all__ = [
    "ConvexParts",
    "ErrorStats",
    "MassProperties",
    "MeshReport",
    "Object",
    "PartsKind",
    "SdfError",
    "Units",
    "convex_parts",
    "load_object",
    "object_names",
]
