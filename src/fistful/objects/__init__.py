"""Meshes made ready: checked, scaled, with a distance field, surface points, hull and mass."""

from fistful.objects.inspection import MeshReport, Units
from fistful.objects.object import MassProperties, Object, SdfError, load_object, object_names

__all__ = ["MassProperties", "MeshReport", "Object", "SdfError", "Units", "load_object", "object_names"]
