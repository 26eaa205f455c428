"""Contact looks at the neighbourhood of other parts only: nothing may change but the time it takes."""

import numpy as np
import pytest
import trimesh

from fistful.jaws import contact as module
from fistful.jaws.contact import Contact, Surfaces, neighbourhood
from fistful.jaws.gripper import Pad
from fistful.jaws.simulation import Settings, World
from jaws_worlds import INWARD, solid_of, world_between

pytest.importorskip("ipctk")
DHAT = 5e-5
EVERYTHING = 1e3


def scene(gap: float = 2e-5) -> Surfaces:
    """A ball of 1280 faces `gap` (m) above a plate of many faces."""
    ball = trimesh.creation.icosphere(3, 0.03)
    plate = trimesh.creation.box((0.1, 0.1, 0.002)).subdivide().subdivide().subdivide()
    floor = plate.vertices - [0, 0, 0.031 + gap]
    vertices = np.concatenate([ball.vertices, floor])
    faces = np.concatenate([ball.faces, plate.faces + len(ball.vertices)]).astype(np.int32)
    part = np.repeat([0, 1], [len(ball.vertices), len(floor)]).astype(np.int32)
    return Surfaces(vertices, faces, part)


def found_at(contact: Contact, x: np.ndarray) -> None:
    contact.cover(x, np.zeros_like(x))
    contact.find(x)


def test_neighbourhood_holds_all_that_is_near():
    """Every face with a point within the margin of the other part's points is there; most are not."""
    vertices, faces, part = scene()
    margin = 4e-3
    close = neighbourhood(vertices, faces, part, margin)
    points = vertices[faces].mean(axis=1)
    owner = part[faces[:, 0]]
    for own in (0, 1):
        others = vertices[part != own]
        mine = np.flatnonzero(owner == own)
        distance = np.linalg.norm(points[mine][:, None] - others[None], axis=2).min(axis=1)
        assert set(mine[distance < margin]) <= set(close)
    assert 0 < len(close) < len(faces) / 2


def test_far_parts_do_not_touch():
    """Parts with nothing near each other have no pairs, no force, and no intersection."""
    surfaces = scene(gap=0.02)
    contact = Contact(surfaces, DHAT, 0.4)
    found_at(contact, surfaces.vertices)
    assert contact.count == 0 and not contact.intersects(surfaces.vertices)
    assert not contact.push(surfaces.vertices).any()
    down = np.where(surfaces.part[:, None] == 0, [0, 0, -0.03], 0.0)
    # The way is longer than what is covered, so it is cut; never does it lead into the plate.
    x, steps = surfaces.vertices, 0
    while (gap := x[surfaces.part == 0, 2].min() - x[surfaces.part == 1, 2].max()) > DHAT:
        x = x + contact.free_step(x, down) * down
        assert not contact.intersects(x)
        steps += 1
        assert steps < 200
    assert gap > 0


def test_a_cut_is_seen():
    surfaces = scene(gap=-1e-3)
    contact = Contact(surfaces, DHAT, 0.4)
    found_at(contact, surfaces.vertices)
    assert contact.intersects(surfaces.vertices)


def test_new_neighbourhood_keeps_friction():
    """When the neighbourhood is renewed within a time step, friction is still that of its beginning."""
    surfaces = scene()
    x = surfaces.vertices
    contact = Contact(surfaces, DHAT, 0.4)
    found_at(contact, x)
    contact.lag(x, 1e-6)
    u = np.where(surfaces.part[:, None] == 0, [3e-6, 0, 0], 0.0)
    before, near = contact.drag(u), contact.near
    assert np.abs(before).max() > 0.1
    rolled = np.where(surfaces.part[:, None] == 0, x @ turn_y(0.2).T + [0, 0, 1e-4], x)
    found_at(contact, rolled)
    assert not np.array_equal(near, contact.near)
    assert np.allclose(contact.drag(u), before, rtol=1e-9, atol=1e-12)
    fresh = Contact(surfaces, DHAT, 0.4)
    found_at(fresh, rolled)
    assert np.allclose(contact.push(rolled), fresh.push(rolled))
    # Also when what touched at the beginning of the step is nowhere near now.
    found_at(contact, x + np.where(surfaces.part[:, None] == 0, [0, 0, 0.02], 0.0))
    assert contact.count == 0
    assert np.allclose(contact.drag(u), before, rtol=1e-9, atol=1e-12)


def turn_y(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])


def test_a_squeeze_is_the_same_with_all_faces(monkeypatch: pytest.MonkeyPatch):
    """Jaws that press and drag a ball: the same motion as with the whole meshes, within rounding."""

    def squeezed() -> World:
        ball = trimesh.creation.icosphere(3, 0.015)
        world = world_between(solid_of(ball, 0.05), Pad(), 1e-4, Settings(), friction=0.5, plane=False)
        for _ in range(12):
            world.servo.target = world.servo.target + 1e-4 * INWARD + [0, 0, 2e-4]
            report = world.step(2e-3)
            assert report.converged and not report.intersects
        return world

    near = squeezed()
    monkeypatch.setattr(module, "_NEIGHBOURHOOD", EVERYTHING)
    whole = squeezed()
    assert len(near.contact.near) < 0.7 * len(near.x)
    assert len(whole.contact.near) == len(whole.x)
    assert np.abs(near.q - whole.q).max() < 1e-8
    assert np.linalg.norm(near.com_W) > 1e-4
