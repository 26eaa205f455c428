"""Poses, primitives, distances and samples: mathematics that knows neither hands nor objects."""
