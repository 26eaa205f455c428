"""Questions about the tree of any compiled model: names, what carries what, where the palm is."""

from collections.abc import Iterable

import mujoco

from fistful.errors import HandError
from fistful.hands.model import FREE


def joints_of(m: mujoco.MjModel, body: int) -> range:
    """Indices of the joints that move a body."""
    first = int(m.body_jntadr[body])
    return range(first, first + int(m.body_jntnum[body]))


def body_name(m: mujoco.MjModel, body: int) -> str:
    """The body's name, or one made up; the world, where it serves as palm, can not keep its own."""
    taken = [m.body(b).name for b in range(m.nbody)]
    return (body and taken[body]) or unused_name(f"body_{body}" if body else "base", taken)


def joint_name(m: mujoco.MjModel, joint: int) -> str:
    """The joint's name, or one made up of its body's."""
    taken = [m.joint(j).name for j in range(m.njnt)]
    body = int(m.jnt_bodyid[joint])
    made_up = f"{body_name(m, body)}_joint{joint - int(m.body_jntadr[body])}"
    return taken[joint] or unused_name(made_up, taken)


def unused_name(name: str, taken: Iterable[str]) -> str:
    """The name, made longer until it is not taken."""
    while name in taken:
        name += "_"
    return name


def descends(m: mujoco.MjModel, body: int, ancestor: int) -> bool:
    """Whether a body is another or hangs from it."""
    return body == ancestor or ancestor in _ancestors(m, body)


def carriers(m: mujoco.MjModel, palm: int = 0) -> list[int]:
    """For each body, the body with a joint (or the palm, or the world) that it is rigidly fixed to."""
    carrier = [0] * m.nbody
    for b in range(1, m.nbody):
        carrier[b] = b if m.body_jntnum[b] or b == palm else carrier[m.body_parentid[b]]
    return carrier


def find_palm(m: mujoco.MjModel) -> int:
    """The deepest body that all fingers hang from.

    Fingers end in moving bodies that carry shapes and have no moving body with shapes below them. With a
    single finger there is nothing to branch from, and the body that carries the first joint is taken.
    Bodies that only a free joint moves are loose objects of the scene.
    """
    carrier = carriers(m)
    moving = {carrier[int(b)] for b in m.geom_bodyid} - {0}
    moving = {b for b in moving if not _is_loose(m, b)}
    above = {b: _ancestors(m, b) for b in moving}
    tips = [b for b in moving if not any(b in chain for chain in above.values())]
    if not tips:
        raise HandError("the model has no joint that moves a shape: it is not a hand")
    if len(tips) == 1:
        return next(int(m.body_parentid[b]) for b in [*reversed(above[tips[0]]), *tips] if m.body_jntnum[b])
    common = set.intersection(*(set(above[t]) for t in tips))
    return max(common, key=lambda b: len(_ancestors(m, b)))


def _is_loose(m: mujoco.MjModel, body: int) -> bool:
    joints = [j for b in (body, *_ancestors(m, body)) for j in joints_of(m, b)]
    return all(m.jnt_type[j] == FREE for j in joints)


def _ancestors(m: mujoco.MjModel, body: int) -> list[int]:
    """Parent, grandparent, ..., world."""
    chain = []
    while body:
        body = int(m.body_parentid[body])
        chain.append(body)
    return chain
