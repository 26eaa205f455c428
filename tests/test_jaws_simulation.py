"""The simulator of soft jaws against closed forms: friction, stiffness, Hertz, flight, refinement."""

import numpy as np
import pytest
import trimesh

from fistful.jaws.contact import Contact, Surfaces, barrier_curvature, barrier_slope, barrier_value
from fistful.jaws.gripper import Pad, rectangle
from fistful.jaws.newton import COMMON, Arrow
from fistful.jaws.pad_mesh import mesh_pad
from fistful.jaws.plane import Plane
from fistful.jaws.simulation import GRAVITY, Hinge, Settings, World
from jaws_worlds import INWARD, block, forces, solid_of, squeeze, world_between

pytest.importorskip("ipctk")
SETTINGS = Settings()
# Steps of half a second end at rest: only statics count, so they have to be solved closely.
STATIC = Settings(tolerance=1e-7, max_iterations=200)


def press(world: World, depth: float, steps: int = 6, h: float = 0.5) -> None:
    """Bring both jaws inward by `depth` (m) so slowly that nothing but the statics counts."""
    for _ in range(steps):
        world.servo.target = world.servo.target + INWARD * depth / steps
        report = world.step(h)
        assert report.converged and not report.intersects and not report.inverted


def compression(world: World, mesh) -> float:
    """Mean shortening of pad 0 between its face and its backing, m."""
    nodes = world.nodes[: world.pads.count]
    length = nodes[mesh.nodes[:, 0] == 0, 0].mean() - nodes[mesh.backing, 0].mean()
    return np.ptp(mesh.nodes[:, 0]) - length


@pytest.mark.parametrize(("load", "slips"), [(0.95, False), (1.05, True)])
def test_coulomb_threshold(load: float, slips: bool):
    """A heavy block, held with a constant 20 N, slides once its weight passes 2 mu N; 5 % decide."""
    mu, N = 0.3, 20.0
    mass = load * 2 * mu * N / GRAVITY
    world = world_between(
        block((0.03, 0.06, 0.06), mass), Pad(), 1e-4, SETTINGS, friction=mu, plane=False, gravity=0.0
    )
    squeeze(world, N)
    world.servo.limit, world.gravity = N, GRAVITY
    world.servo.target = world.servo.target + 1e-4 * INWARD
    speeds = []
    for _ in range(50):
        world.step(2e-3)
        speeds.append(-world.v[-10])
    assert forces(world) == pytest.approx([N, N], rel=0.02)
    if slips:
        # Coulomb: a = g (1 - 1 / load).
        pull = (speeds[-1] - speeds[-21]) / 0.04 / GRAVITY
        assert pull == pytest.approx(1 - 1 / load, abs=0.01)
    else:
        assert max(speeds[-10:]) < SETTINGS.slip_speed


@pytest.mark.parametrize("mu", [0.1, 0.8])
def test_sliding_friction_is_mu_times_the_normal_force(mu: float):
    """In steady sliding: tangential over normal force is mu within 2 %."""
    world = world_between(block((0.03, 0.06, 0.06), 1.0), Pad(), 1e-4, SETTINGS, friction=mu, plane=False)
    world.gravity = 0.0
    squeeze(world, 10.0)
    world.gravity, before = 40 * mu, 0.0
    for _ in range(25):
        before = world.v[-10]
        world.step(2e-3)
    drag = 1.0 * (world.gravity + (world.v[-10] - before) / 2e-3)
    assert drag / forces(world).sum() == pytest.approx(mu, rel=0.02)


def test_stiffness_of_a_pad_without_lateral_strain():
    """With nu = 0 a pad of any shape has the stiffness E A / t."""
    pad = Pad(poissons_ratio=0.0)
    mesh = mesh_pad(pad.outline, pad.thickness, 3e-3, 2)
    world = world_between(
        block((0.03, 0.06, 0.06), 1e3), pad, 4e-5, STATIC, mesh, friction=0.0, plane=False, gravity=0.0
    )
    press(world, 4e-5)
    area = world.pads.solid.volumes.sum() / 2 / pad.thickness
    # Neo-Hookean under 1 % strain: within a percent of Hooke.
    k = forces(world)[0] / compression(world, mesh)
    assert k == pytest.approx(pad.youngs_modulus * area / pad.thickness, rel=0.03)


def test_stiffness_of_a_column():
    """A bonded column six times as long as wide, nu = 0.45: E A / L within 5 %."""
    pad = Pad(outline=rectangle(0.005, 0.005), thickness=0.03)
    mesh = mesh_pad(pad.outline, pad.thickness, 1.25e-3, 16)
    world = world_between(
        block((0.03, 0.06, 0.06), 1e3), pad, 4e-5, STATIC, mesh, friction=0.0, plane=False, gravity=0.0
    )
    press(world, 1e-4, steps=4)
    k = forces(world)[0] / compression(world, mesh)
    assert k == pytest.approx(pad.youngs_modulus * 25e-6 / pad.thickness, rel=0.05)


def graded(fine: float, count: int, growth: float, end: float) -> np.ndarray:
    """Distances from 0: `count` steps of `fine`, then growing ones up to 0.8 `end`."""
    steps = np.concatenate([np.full(count, fine), fine * growth ** np.arange(1, 40)])
    places = np.cumsum(steps)
    return places[places < 0.8 * end]


def around(count: int, turn: float = 0.0) -> np.ndarray:
    """(count, 2) Points on the unit circle, turned by a part of their distance."""
    a = 2 * np.pi * (np.arange(count) + turn) / count
    return np.stack([np.cos(a), np.sin(a)], axis=1)


def on_a_layer(nu: float, chi: float) -> float:
    """Force of a ball on a bonded layer over that on a half space, chi = sqrt(R d) / thickness.

    Dimitriadis et al., Biophysical Journal 82 (2002) 2798, up to the third order:
    1 - 2 a chi / pi + 4 a^2 chi^2 / pi^2 - 8 (a^3 + 4 pi^2 b / 15) chi^3 / pi^3; nu = 0.5: 1 + 1.133 chi ...
    """
    a = -(1.2876 - 1.4678 * nu + 1.3442 * nu**2) / (1 - nu)
    b = (0.6387 - 1.0277 * nu + 1.5164 * nu**2) / (1 - nu)
    x = 2 * chi / np.pi
    return 1 - a * x + a**2 * x**2 - (a**3 + 4 * np.pi**2 / 15 * b) * x**3


def hertz_ratios(fine: float, count: int, growth: float) -> list[float]:
    """Forces of a ball 0.1 and 0.16 mm deep in thick pads, over 4/3 E / (1 - nu^2) sqrt(R) d^(3/2).

    Radius of contact a = sqrt(R d) at d = 0.1 mm, 3 % of R, so that strains are small. Pads 12 a thick and
    wide, meshed with edges of `fine` a out to `count` of them, then growing. The ball has the vertices that
    the pads have: facets of another mesh would hold the pad's nodes off the ball by up to (fine a)^2 / 6R.
    """
    R, depth, nu, E, dhat = 0.1, 1e-4, 0.2, 1e6, 2e-6
    a = np.sqrt(R * depth)
    H = 12 * a
    places = graded(fine * a, count, growth, H)
    rings = [r * around(6 * min(k, count), k % 2 / 2) for k, r in enumerate(places, 1)]
    inner = np.concatenate([np.zeros((1, 2)), *rings])
    depths = np.concatenate([[0], graded(fine * a, count - 1, growth, H), [H]]) / H
    pad = Pad(outline=H * around(12), thickness=H, youngs_modulus=E, poissons_ratio=nu)
    mesh = mesh_pad(pad.outline, H, 3 * H, 1 - depths[::-1], inner)
    skin = np.concatenate(
        [inner[np.linalg.norm(inner, axis=1) < 2 * a], *(R * f * around(12) for f in (0.2, 0.5, 0.8))]
    )
    half = np.column_stack([np.sqrt(R**2 - (skin**2).sum(axis=1)), skin])
    ball = solid_of(trimesh.Trimesh(np.concatenate([half, half * [-1, 1, 1]])).convex_hull, 1e3)
    settings = Settings(dhat=dhat, tolerance=1e-7, max_iterations=200)
    start = 1.2 * dhat
    world = world_between(ball, pad, start, settings, mesh, friction=0.0, plane=False, gravity=0.0)
    ratios = []
    for more in (start + depth, 0.6 * depth):
        press(world, more, steps=1)
        # Faces were `start` apart; what is left of that has been pressed out of the pad as well.
        d = world.shifts[0, 0] - start + world.contact.gap(world.x)
        hertz = 4 / 3 * E / (1 - nu**2) * np.sqrt(R) * d**1.5
        ratios.append(float(forces(world)[0] / (hertz * on_a_layer(nu, np.sqrt(R * d) / H))))
    return ratios


def test_hertz():
    """A ball on a thick pad: within 10 % of Hertz, and from above: linear tetrahedra are too stiff.

    Being one-sided, it notices a modulus that is wrong by 10 % either way. What is left sinks with the edges
    (in linear elasticity, growing by 1.4: 1.07 with edges of 0.4 a, 1.05 with 0.25 a).
    """
    assert on_a_layer(0.5, 0.1) == pytest.approx(1 + 0.1133 + 0.01283 + 0.000769, abs=1e-4)
    for ratio in hertz_ratios(1 / 3, 4, 1.4):
        assert 1.0 < ratio < 1.1


def hinge_of(pad: Pad, settings: Settings, reach: float, stiffness: float) -> Hinge:
    """A hinge `reach` (m) behind the middle of both pads, N m / rad."""
    mesh = mesh_pad(pad.outline, pad.thickness, settings.pad_size, settings.pad_layers)
    return Hinge(np.stack([mesh.nodes[:, 2] + reach] * 2), stiffness)


def test_jaws_bend_like_cantilevers():
    """A force F at the end of a cantilever of length L and stiffness k turns it by 3 F / (2 k L)."""
    k, L = 2e4, 0.06
    pad = Pad(outline=rectangle(0.016, 0.016))
    hinge = hinge_of(pad, STATIC, 2 / 3 * L, k * (2 / 3 * L) ** 2)
    # A small block presses on the middle, so that F acts there.
    solid = block((0.03, 0.004, 0.004), 1e3)
    world = world_between(solid, pad, 1e-4, STATIC, friction=0.0, plane=False, gravity=0.0, hinge=hinge)
    press(world, 5e-4)
    F = forces(world)
    assert F.min() > 1
    assert world.tilts == pytest.approx(3 * F / (2 * k * L), rel=0.01)
    # The tips are farther apart than the palm's end of the backings, by the tilt times their distance.
    nodes = world.nodes.reshape(2, -1, 3)[:, mesh_pad(pad.outline, pad.thickness, 3.2e-3, 2).backing]
    apart = nodes[1, :, 0] - nodes[0, :, 0]
    tip, root = nodes[0, :, 2].argmax(), nodes[0, :, 2].argmin()
    assert apart[tip] - apart[root] == pytest.approx(world.tilts.sum() * 0.016, rel=1e-3)


def test_free_flight():
    """Backward Euler's parabola exactly, no spin from nothing, no gain of energy while spinning."""
    world = world_between(
        block((0.02, 0.03, 0.04), 0.1, (0, 0, 1.0)), Pad(), 0.05, SETTINGS, friction=0.4, plane=True
    )
    world.shift_jaws(np.tile([0, 0, 1.0], (2, 1)), np.zeros((2, 3)))
    n, h = 20, 2e-3
    for _ in range(n):
        assert world.step(h).converged
    assert 1.0 - world.com_W[2] == pytest.approx(GRAVITY * h**2 * n * (n + 1) / 2, rel=1e-6)
    assert np.degrees(np.arccos(np.clip((np.trace(world.turn_W) - 1) / 2, -1, 1))) < 1e-4
    world.gravity = 0.0
    spin = np.array([[0, -5.0, 0], [5.0, 0, 0], [0, 0, 0]])
    world.v[-9:] = (spin @ world.q[-9:].reshape(3, 3)).ravel()
    momentum, energy = world.v[-12:-9] * 0.1, np.inf
    for _ in range(40):
        world.step(h)
        now = world.v[-12:] @ world.body.mass_matrix @ world.v[-12:] / 2 + world.body.energy(world.q[-12:])
        assert now <= energy * (1 + 1e-9)
        energy = now
    assert np.allclose(world.v[-12:-9] * 0.1, momentum, atol=1e-8)


def test_no_energy_from_a_fall():
    """A block falls on the plane, tilted: the energy never rises, and it comes to rest above the plane."""
    box = trimesh.creation.box((0.03, 0.03, 0.03))
    box.apply_transform(trimesh.transformations.rotation_matrix(0.2, [1, 2, 0]))
    world = world_between(solid_of(box, 0.05, (0, 0, 0.025)), Pad(), 0.05, SETTINGS, friction=0.4, plane=True)
    world.shift_jaws(np.tile([0, 0, 0.1], (2, 1)), np.zeros((2, 3)))
    last = np.inf
    for _ in range(120):
        report = world.step(2e-3)
        assert report.converged and not report.intersects
        x, v = world.x, world.v[-12:]
        low = world.potential.plane
        assert low is not None
        total = v @ world.body.mass_matrix @ v / 2 + 0.05 * GRAVITY * world.com_W[2] + low.energy(x, 0 * x)
        assert total <= last + 1e-8
        last = total
    assert np.abs(world.v[-12:-9]).max() < 5e-3
    assert 0 < world.x[world.surfaces.part == 2, 2].min() < SETTINGS.dhat


def test_rest_stays_rest():
    """A block held by nothing on the plane neither drifts nor turns."""
    world = world_between(block((0.03,) * 3, 0.05, (0, 0, 0.01504)), Pad(), 0.05, SETTINGS, friction=0.4)
    world.shift_jaws(np.tile([0, 0, 0.1], (2, 1)), np.zeros((2, 3)))
    for _ in range(100):
        world.step(2e-3)
    assert np.abs(world.com_W[:2]).max() < 1e-7
    assert np.abs(world.v[-12:]).max() < 1e-3


def test_refinement_of_the_mesh():
    """The force of a pad pressed by 60 um between smooth walls: differences shrink as its mesh is refined."""
    found = []
    for size, layers in ((6e-3, 1), (3e-3, 2), (1.5e-3, 4)):
        pad = Pad(outline=rectangle(0.016, 0.022))
        mesh = mesh_pad(pad.outline, pad.thickness, size, layers)
        world = world_between(
            block((0.03, 0.06, 0.06), 1e3), pad, 4e-5, STATIC, mesh, friction=0.0, plane=False, gravity=0.0
        )
        press(world, 6e-5, steps=2)
        found.append(forces(world)[0] / compression(world, mesh))
    assert abs(found[2] - found[1]) < 0.6 * abs(found[1] - found[0])
    assert found[0] > found[1] > found[2]  # Linear tetrahedra are too stiff, ever less so.


def test_refinement_of_time():
    """How far a block slides in 40 ms: of first order, differences halve with the time step."""
    slides = []
    for h in (4e-3, 2e-3, 1e-3):
        world = world_between(
            block((0.03, 0.06, 0.06), 1.0), Pad(), 1e-4, SETTINGS, friction=0.1, plane=False, gravity=0.0
        )
        squeeze(world, 20.0)
        world.servo.limit, world.gravity = 20.0, GRAVITY
        world.servo.target = world.servo.target + 1e-4 * INWARD
        start = world.com_W[2]
        for _ in range(round(0.04 / h)):
            world.step(h)
        slides.append(start - world.com_W[2])
    assert abs(slides[2] - slides[1]) < 0.65 * abs(slides[1] - slides[0])
    # Rigid pads would let it slide by (g - 2 mu N / m) t^2 / 2; these give way by a few tenths of a mm first.
    assert slides[2] == pytest.approx((GRAVITY - 2 * 0.1 * 20.0) * 0.04**2 / 2, rel=0.1)


def test_barrier_and_plane_derivatives():
    rng = np.random.default_rng(3)
    d, dhat, e = rng.uniform(0.05, 0.95, 20) * 5e-5, 5e-5, 1e-10
    slope = (barrier_value(d + e, dhat) - barrier_value(d - e, dhat)) / (2 * e)
    assert np.allclose(slope, barrier_slope(d, dhat), rtol=1e-4, atol=1e-19)
    curvature = (barrier_slope(d + e, dhat) - barrier_slope(d - e, dhat)) / (2 * e)
    assert np.allclose(curvature, barrier_curvature(d, dhat), rtol=1e-4, atol=1e-14)
    x = np.concatenate([rng.normal(size=(20, 2)), d[:, None]], axis=1)
    u, way = rng.normal(size=(20, 3)) * 1e-6, rng.normal(size=(20, 3))
    plane = Plane(dhat, np.full(20, 0.3))
    plane.lag(x, 1e-6)
    step = 1e-11
    up, down = (x + step * way, u + step * way), (x - step * way, u - step * way)
    slope = (plane.energy(*up) - plane.energy(*down)) / (2 * step)
    assert slope == pytest.approx(-((plane.push(x) + plane.drag(u)) * way).sum(), rel=1e-4)
    k, blocks = plane.hessian(x, u)
    bent = -((plane.push(up[0]) + plane.drag(up[1])) - (plane.push(down[0]) + plane.drag(down[1]))) / (
        2 * step
    )
    assert np.allclose(
        np.einsum("kij,kj->ki", blocks, way[k]), bent[k], rtol=1e-3, atol=1e-3 * np.abs(bent).max()
    )


def test_barrier_is_that_of_ipctk():
    ball, plate = trimesh.creation.icosphere(1, 0.01), trimesh.creation.box((0.1, 0.1, 0.01))
    vertices = np.concatenate([ball.vertices, plate.vertices - [0, 0, 0.015 + 2e-5]])
    faces = np.concatenate([ball.faces, plate.faces + len(ball.vertices)]).astype(np.int32)
    part = np.repeat([0, 1], [len(ball.vertices), 8]).astype(np.int32)
    contact = Contact(Surfaces(vertices, faces, part), 5e-5, 0.0)
    contact.cover(vertices, np.zeros_like(vertices))
    contact.find(vertices)
    gap = ball.vertices[:, 2].min() - (plate.vertices[:, 2].max() - 0.015 - 2e-5)
    assert contact.gap(vertices) == pytest.approx(gap)
    lift = contact.push(vertices)[part == 0].sum(axis=0)[2]
    one = -contact.stiffness * barrier_slope(np.array(gap), 5e-5)
    assert lift / one == pytest.approx(round(lift / one), abs=1e-6)


def test_arrow_solves_like_a_dense_matrix():
    rng = np.random.default_rng(1)
    n, width = 12, 4
    arrow = Arrow(np.zeros(Arrow.size(width, n)), width, n)
    dense = np.zeros((2 * n + COMMON,) * 2)
    for p in range(2):
        arrow.bands[p][:] = rng.normal(size=(width, n)) * 0.3
        arrow.bands[p][0] = 8
        arrow.sides[p][:] = rng.normal(size=(n, COMMON)) * 0.3
        for i in range(width):
            for j in range(n - i):
                a, b = p * n + j + i, p * n + j
                dense[a, b] = dense[b, a] = arrow.bands[p][i, j]
        dense[p * n : (p + 1) * n, 2 * n :] = arrow.sides[p]
        dense[2 * n :, p * n : (p + 1) * n] = arrow.sides[p].T
    arrow.corner[:] = dense[2 * n :, 2 * n :] = 9 * np.eye(COMMON)
    b = rng.normal(size=2 * n + COMMON)
    found = arrow.solve(b)
    assert found is not None and np.allclose(found, np.linalg.solve(dense, b))
    arrow.corner[:] = -np.eye(COMMON)
    assert arrow.solve(b) is None


@pytest.mark.parametrize("bending", [None, 20.0])
def test_the_system_is_the_derivative_of_the_energy(bending: float | None):
    """Gradient of the whole incremental potential, with contact and friction, against differences."""
    pad = Pad()
    hinge = None if bending is None else hinge_of(pad, SETTINGS, 0.04, bending)
    solid = block((0.03,) * 3, 0.05, (0, 0, 0.01502))
    world = world_between(solid, pad, 3e-5, SETTINGS, friction=0.4, hinge=hinge)
    world.shift_jaws(np.tile([0, 0, 0.02], (2, 1)), np.zeros((2, 3)))
    rng = np.random.default_rng(0)
    world.v[:] = rng.normal(size=len(world.q)) * 1e-3
    potential = world.potential
    potential.begin(2e-3, world.q, world.q + 2e-3 * world.v, 1e-3)
    q = world.q + rng.normal(size=len(world.q)) * 1e-6
    potential.energy(q)
    gradient, _ = potential.system(q, False)
    for k in (0, 100, len(q) - 20, len(q) - 19, len(q) - 18, len(q) - 12, len(q) - 10, len(q) - 5):
        way = np.zeros(len(q))
        way[k] = 1e-9
        slope = (potential.energy(q + way) - potential.energy(q - way)) / 2e-9
        assert slope == pytest.approx(gradient[k], rel=1e-4, abs=1e-4 * np.abs(gradient).max())
