"""Pads as solids: their meshes, and the Neo-Hookean energy against finite differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fistful.errors import JawsError
from fistful.jaws.affine_body import AffineBody, lever, nearest_rotation
from fistful.jaws.elasticity import NeoHookean, lame
from fistful.jaws.gripper import Pad, rectangle, rounded
from fistful.jaws.pad_mesh import contains, mesh_pad, polygon_area, tet_volumes
from fistful.jaws.pads import Pads

L_SHAPE = np.array([[0, 0], [0.02, 0], [0.02, 0.01], [0.01, 0.01], [0.01, 0.02], [0, 0.02]])
ARROW = np.array([[0, 0], [0.02, 0], [0.02, 0.02], [0.01, 0.005], [0, 0.02]])
OUTLINES = {
    "rectangle": rectangle(0.016, 0.022),
    "rounded": rounded(0.016, 0.022),
    "L": L_SHAPE,
    "arrow": ARROW,
}
PAD = mesh_pad(rounded(0.016, 0.022), 0.0024, 4e-3, 2)


@pytest.mark.parametrize("outline", OUTLINES.values(), ids=OUTLINES)
@pytest.mark.parametrize("size", [1.5e-3, 3.2e-3, 8e-3])
@pytest.mark.parametrize("layers", [1, 3])
def test_a_pad_is_filled_by_positive_tetrahedra(outline: np.ndarray, size: float, layers: int):
    mesh = mesh_pad(outline, 0.0024, size, layers)
    volumes = tet_volumes(mesh.nodes, mesh.tets)
    assert volumes.min() > 0
    assert volumes.sum() == pytest.approx(polygon_area(outline) * 0.0024, rel=1e-9)
    a, b, c = np.moveaxis(mesh.nodes[mesh.faces], 1, 0)
    assert np.einsum("ij,ij->", a, np.cross(b, c)) / 6 == pytest.approx(volumes.sum())
    edges = np.sort(mesh.faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
    assert set(np.unique(edges, axis=0, return_counts=True)[1]) == {2}
    assert np.allclose(mesh.nodes[mesh.backing, 0], -0.0024)
    other = mesh.mirrored()
    assert tet_volumes(other.nodes, other.tets).min() > 0


@pytest.mark.parametrize(
    ("outline", "message"),
    [
        (rectangle(0.01, 0.01)[::-1], "clockwise"),
        (np.array([[0, 0], [1, 1], [1, 0], [0, 1.5]]), "cross|clockwise"),
        (np.zeros((2, 2)), "N >= 3"),
        (np.full((4, 2), np.nan), "finite"),
    ],
)
def test_outlines_that_are_none(outline: np.ndarray, message: str):
    with pytest.raises(JawsError, match=message):
        mesh_pad(outline, 0.002, 0.003)


def test_contains():
    inside = contains(L_SHAPE, np.array([[0.005, 0.015], [0.015, 0.015], [0.015, 0.005], [-0.01, 0.005]]))
    assert inside.tolist() == [True, False, True, False]


def bent(seed: int, amount: float) -> np.ndarray:
    """The pad with random nodes, all tetrahedra still positive."""
    rng = np.random.default_rng(seed)
    return PAD.nodes + rng.normal(size=PAD.nodes.shape) * amount


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 8e-5), st.floats(0, 0.49))
def test_neo_hookean_derivatives(seed: int, amount: float, nu: float):
    """Gradient against the energy, Hessian against the gradient, for every tetrahedron at once."""
    solid = NeoHookean(PAD.nodes, PAD.tets, *lame(1e6, nu))
    x, e = bent(seed, amount), 1e-8
    if solid.inverted(x):
        return
    gradient, hessian = (a.copy() for a in solid.derivatives(x))
    assert np.allclose(hessian, hessian.transpose(0, 2, 1))
    way = np.random.default_rng(seed).normal(size=x.shape)
    local = way[PAD.tets].reshape(-1, 12)
    slope = (solid.energies(x + e * way) - solid.energies(x - e * way)) / (2 * e)
    exact = np.einsum("ti,ti->t", gradient.reshape(-1, 12), local)
    assert np.allclose(slope, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max() + 1e-7)
    up = solid.derivatives(x + e * way)[0].copy()
    down = solid.derivatives(x - e * way)[0].copy()
    bend = ((up - down) / (2 * e)).reshape(-1, 12)
    exact = np.einsum("tij,tj->ti", hessian, local)
    assert np.allclose(bend, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max())
    projected = solid.derivatives(x, project=True)[1]
    assert np.linalg.eigvalsh(projected).min() > -1e-6 * np.abs(projected).max()


def test_rest_and_rotation_cost_nothing_and_inversion_is_infinite():
    solid = NeoHookean(PAD.nodes, PAD.tets, *lame(1e6, 0.45))
    turn = nearest_rotation(np.random.default_rng(0).normal(size=(3, 3)))
    assert np.allclose(solid.energies(PAD.nodes @ turn.T + 1), 0, atol=1e-12)
    assert np.isinf(solid.energies(PAD.nodes * [-1, 1, 1])).all()
    assert solid.inverted(PAD.nodes * [-1, 1, 1]) == len(PAD.tets)


def test_uniform_stretch_has_hookes_stress():
    """Small uniaxial strain with free sides: energy E e^2 / 2 per volume."""
    E, nu, e = 1e6, 0.45, 1e-4
    solid = NeoHookean(PAD.nodes, PAD.tets, *lame(E, nu))
    energy = solid.energies(PAD.nodes * [1 + e, 1 - nu * e, 1 - nu * e]).sum()
    assert energy / solid.volumes.sum() == pytest.approx(E * e**2 / 2, rel=1e-3)


@pytest.mark.parametrize("bends", [False, True])
def test_pads_sum_tetrahedra_like_a_dense_matrix(bends: bool):
    """Gradient and Hessian by the unknowns, against sums over tetrahedra and dense Jacobians."""
    mesh = mesh_pad(rectangle(0.006, 0.008), 0.002, 3e-3, 2)
    rng = np.random.default_rng(2)
    turns = rng.normal(size=(2 * len(mesh.nodes), 3)) * 0.04 if bends else None
    pads = Pads((mesh, mesh.mirrored()), Pad(), turns)
    q = np.concatenate([pads.rest[pads.free].ravel(), np.zeros(8)])
    q += rng.normal(size=len(q)) * 2e-5
    x = pads.positions(q)
    # Linear in q, so that the moves by unit steps are the Jacobian.
    J = np.stack([pads.displacements(step).ravel() for step in np.eye(len(q))], axis=1)
    assert np.allclose(x.ravel() - J @ q, pads.positions(np.zeros(len(q))).ravel())
    assert J[:, 2 * pads.n : 2 * pads.n + 2].any() == bends
    gradient, arrow = pads.derivatives(x, False)
    tet_gradient, tet_hessian = pads.solid.derivatives(x)
    full, slope = np.zeros((x.size, x.size)), np.zeros(x.size)
    for tet, g, h in zip(pads.tets, tet_gradient, tet_hessian, strict=True):
        index = (3 * tet[:, None] + np.arange(3)).ravel()
        np.add.at(slope, index, g.ravel())
        np.add.at(full, np.ix_(index, index), h)
    assert np.allclose(gradient, J.T @ slope)
    dense = J.T @ full @ J
    for p in range(2):
        rows = slice(p * pads.n, (p + 1) * pads.n)
        for i in range(pads.width):
            assert np.allclose(arrow.bands[p][i, : pads.n - i], np.diagonal(dense[rows, rows], -i))
        assert np.allclose(arrow.sides[p][:, :8], dense[rows, 2 * pads.n :])
    assert np.allclose(arrow.corner[:8, :8], dense[2 * pads.n :, 2 * pads.n :])


def test_affine_body():
    """Mass matrix against sums over points, energy against differences; rotations cost nothing."""
    rng = np.random.default_rng(4)
    points, masses = rng.normal(size=(30, 3)) * 0.02, rng.uniform(0.5, 1, 30) * 1e-3
    points -= masses @ points / masses.sum()
    inertia = sum(m * (p @ p * np.eye(3) - np.outer(p, p)) for m, p in zip(masses, points, strict=True))
    body = AffineBody(masses.sum(), np.asarray(inertia), 1e-5)
    J = lever(points)
    assert np.allclose(body.mass_matrix, J.T @ (np.repeat(masses, 3)[:, None] * J))
    turn = nearest_rotation(rng.normal(size=(3, 3)))
    q = np.concatenate([rng.normal(size=3), turn.ravel()])
    assert body.energy(q) == pytest.approx(0, abs=1e-9)
    q[3:] += rng.normal(size=9) * 0.3
    gradient, _ = body.derivatives(q)
    for k in range(9):
        way = np.zeros(12)
        way[3 + k] = 1e-6
        slope = (body.energy(q + way) - body.energy(q - way)) / 2e-6
        assert slope == pytest.approx(gradient[k], rel=1e-5, abs=1e-2)
    q[3:] = 1.2 * turn.ravel()  # Stretched: there the Hessian is positive, hence not changed by projection.
    _, hessian = body.derivatives(q)
    for k in range(9):
        way = np.zeros(12)
        way[3 + k] = 1e-6
        bend = (body.derivatives(q + way)[0] - body.derivatives(q - way)[0]) / 2e-6
        assert np.allclose(bend, hessian[:, k], rtol=1e-4, atol=1e-4 * np.abs(hessian).max())
