"""A plan as one HTML file: hand, objects and grasps to turn and step through, from disk, without network.

What is seen is computed in the browser (page/page.js): meshes are embedded once, grasps are joint vectors and
object poses. The arrays are one zlib stream in base64, the rest is JSON. Same plan, same bytes.
"""

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from fistful.errors import PlanError
from fistful.geometry.pose import quaternion_from_rotation
from fistful.hands.hand import Hand
from fistful.physics.verdict import Reason
from fistful.planning.plan import Plan
from fistful.view.colours import ACTIVE, BLUE, FREE, FROZEN, PENETRATING, PURPLE, of_object
from fistful.view.figure import best_views, figure_of, view_axes
from fistful.view.moment import PHASES, Moment, body_colours, hand_meshes, moment_of, overlapping

MOST_GRASPS = 300
"""Sequences on a page, if not told otherwise."""
BUDGET_BYTES = 4_500_000
HEAVY_FACES = 2000
"""Meshes with more triangles are simplified where a page would not fit."""
TOLERANCES = tuple(3e-5 * 3**k for k in range(6))
"""m. How far simplified surfaces may be from exact ones, tried in this order: 0.03 mm to 7.3 mm."""
WITHOUT_PROTOCOL = 1.0
"""Friction coefficient of the cones of a plan that was not tried in physics."""
SHORT = {
    Reason.HELD: "held",
    Reason.DEEP: "too deep",
    Reason.STAND_IN: "not judged",
    Reason.UNTOUCHED: "untouched",
    Reason.LOST: "lost",
    Reason.MOVED: "moved",
    Reason.UNSTABLE: "unstable",
}


def plan_page(
    plan: Plan, *, grasp: int | None = None, grasps: int = MOST_GRASPS, budget_bytes: int = BUDGET_BYTES
) -> str:
    """One HTML document that shows the best sequences of a plan, stage by stage. Reads its own template only.

    1. The best grasps of the last stage and all that they continue: as many as fit half of the budget.
    2. All meshes; heavy ones are simplified, more and more, until the page fits. The page says so.

    Args:
      plan: Plan with at least one stage.
      grasp: A grasp of the last stage to show first; by default the best one.
      grasps: At most this many sequences.
      budget_bytes: The document, in UTF-8, is no longer than this.

    Raises:
      PlanError: The plan has no finished stage, or a page of one grasp does not fit the budget.
    """
    if grasps < 1:
        raise PlanError(f"a page shows one grasp or more, not {grasps}")
    ranked = plan.ranked(-1)
    if grasp is not None:
        ranked = np.concatenate([[grasp], ranked[ranked != grasp]])
    ranked = ranked[:grasps]
    scene = _scene(plan, ranked)
    while len(ranked) > 1 and len(_document(*scene)) > budget_bytes / 2:
        ranked = ranked[: -(-len(ranked) // 2)]
        scene = _scene(plan, ranked)
    size = 0
    for tolerance in (0.0, *TOLERANCES):
        page = _document(*_with_meshes(plan, tolerance, *scene))
        size = len(page)
        if size <= budget_bytes:
            return page.decode()
    raise PlanError(f"a page of {plan!r} needs {size:,} bytes; {budget_bytes:,} are allowed")


class _Blob:
    """Arrays one after the other in one stream of bytes."""

    def __init__(self, parts: Sequence[bytes] = ()) -> None:
        self._parts = list(parts)
        self._length = sum(map(len, parts))

    def copy(self) -> "_Blob":
        """Another one that starts with the same arrays."""
        return _Blob(self._parts)

    def add(self, array: np.ndarray, dtype: str) -> dict[str, Any]:
        """Where an array is, for the browser: dtype, offset in bytes (a multiple of 4) and shape."""
        array = np.asarray(array)
        data = np.ascontiguousarray(array, dtype=np.dtype(dtype).newbyteorder("<")).tobytes()
        entry = {"dtype": dtype, "offset": self._length, "shape": list(array.shape)}
        data += bytes(-len(data) % 4)
        self._parts.append(data)
        self._length += len(data)
        return entry

    def encoded(self) -> str:
        return b64encode(zlib.compress(b"".join(self._parts), 6)).decode()


def _scene(plan: Plan, ranked: np.ndarray) -> tuple[dict[str, Any], _Blob]:
    """All but the meshes: these grasps of the last stage and what they continue."""
    blob = _Blob()
    paths = np.array([plan.lineage(-1, i) for i in ranked])
    # Sequences share what they have in common: each stage lists the grasps that any of them has there.
    used = [np.unique(column, return_inverse=True) for column in paths.T]
    objects = plan.objects[: len(plan.stages)]
    record = {
        "title": _title(plan),
        "hand": {"name": plan.hand.name, "tree": _tree(plan.hand), "view": _view_of(plan, int(ranked[0]))},
        "objects": [{"name": item.name, "colour": of_object(n)} for n, item in enumerate(objects)],
        "phases": PHASES,
        "colours": {"bodies": _BODY_COLOURS, "overlap": PENETRATING, "contact": BLUE, "cone": PURPLE},
        "friction": WITHOUT_PROTOCOL if plan.validation is None else plan.validation.protocol.friction,
        "stages": [_stage(plan, n, column, blob) for n, (column, _) in enumerate(used)],
        "sequences": np.stack([place.ravel() for _, place in used], axis=1).tolist(),
        "facts": _facts(plan, ranked),
        "notes": _notes(plan),
    }
    return record, blob


def _document(record: dict[str, Any], blob: _Blob) -> bytes:
    """The template with all that it shows."""
    # Nothing in a JSON document can end the script element that it stands in.
    text = json.dumps(record, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    folder = files("fistful.view") / "page"
    parts = {
        "title": escape(record["title"]),
        "css": (folder / "page.css").read_text(encoding="utf-8"),
        "js": (folder / "page.js").read_text(encoding="utf-8"),
        "plan": text,
        "blob": blob.encoded(),
    }
    template = (folder / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template).encode()


_BATCH = 16
_BODY_COLOURS = (FREE, ACTIVE, FROZEN)


def _title(plan: Plan) -> str:
    return f"{plan.hand.name}: {', '.join(stage.object_name for stage in plan.stages)}"


def _tree(hand: Hand) -> dict[str, Any]:
    """The kinematic tree, for forward kinematics in the browser."""
    t = hand.model.tree
    return {
        "parent": t.parent.tolist(),
        "p": t.p_PB.tolist(),
        "R": t.R_PB.reshape(-1, 9).tolist(),
        "joints": [
            {
                "body": int(t.joint_body[j]),
                "slides": bool(t.slides[j]),
                "anchor": t.anchor_B[j].tolist(),
                "axis": t.axis_B[j].tolist(),
                "zero": float(t.zero[j]),
            }
            for j in range(len(t.zero))
        ],
    }


def _view_of(plan: Plan, grasp: int) -> dict[str, list[float]]:
    """From where to look first: whence all objects of a grasp of the last stage are seen, fingers up."""
    figure = figure_of(plan, -1, grasp)
    return {"towards": best_views(figure)[0].tolist(), "up": view_axes(plan.hand).above.tolist()}


def _stage(plan: Plan, stage: int, grasps: np.ndarray, blob: _Blob) -> dict[str, Any]:
    """One stage: what the list says of some of its grasps, and where their arrays are."""
    moments = [moment_of(plan, stage, int(i)) for i in grasps]
    joints = plan.hand.model.expand(np.stack([m.q for m in moments]))
    held = plan.held(stage)
    code = [[_BODY_COLOURS.index(c) for c in body_colours(plan.hand, m)] for m in moments]
    return {
        "object": plan.stages[stage].object_name,
        "rows": [_row(plan, stage, int(i), held=bool(held[i])) for i in grasps],
        "joints": blob.add(joints, "float32"),
        "p": blob.add(np.stack([m.p_HO for m in moments]), "float32"),
        "wxyz": blob.add(quaternion_from_rotation(np.stack([m.R_HO for m in moments])), "float32"),
        "bodies": blob.add(np.array(code), "uint8"),
        "contacts": {
            "number": moments[0].contacts.number.tolist(),
            "p": blob.add(np.stack([m.contacts.p_H for m in moments]), "float32"),
            "n": blob.add(np.stack([m.contacts.n_H for m in moments]), "float32"),
        },
        "overlap": _overlaps(plan, moments, blob),
    }


def _overlaps(plan: Plan, moments: Sequence[Moment], blob: _Blob) -> dict[str, Any]:
    """Points of the skin inside an object, at each phase: places in a list of points fixed to bodies."""
    skin, parts = plan.hand.skin, []
    for k in range(0, len(moments), _BATCH):
        some = moments[k : k + _BATCH]
        q, p_HO, R_HO = np.stack([m.q for m in some]), [m.p_HO for m in some], [m.R_HO for m in some]
        p_HO, R_HO = (np.repeat(x, len(PHASES), axis=0) for x in (p_HO, R_HO))
        parts.append(overlapping(plan.hand, plan.objects, q.reshape(len(p_HO), -1), p_HO, R_HO))
    inside = np.concatenate(parts)
    shown = np.flatnonzero(inside.any(axis=0))
    counts = np.cumsum([0, *inside.sum(axis=1)])
    return {
        "body": blob.add(skin.body[shown], "uint16"),
        "p_B": blob.add(skin.p_B[shown], "float32"),
        "starts": blob.add(counts, "uint32"),
        "places": blob.add(np.nonzero(inside[:, shown])[1], "uint16" if len(shown) <= 0xFFFF else "uint32"),
    }


def _row(plan: Plan, stage: int, grasp: int, held: bool) -> dict[str, Any]:
    """What the list says of one grasp; `text` is the verdict in words."""
    s = plan.stages[stage]
    row = {
        "grasp": grasp,
        "space": s.spaces[s.grasps.space[grasp]],
        "quality": _number(s.grasps.quality[grasp]),
        "penetration_mm": _number(s.measures.penetration_mm[grasp]),
        "held": held,
    }
    if plan.validation is None or stage >= len(plan.validation.verdicts):
        good = "geometrically good" if s.good[grasp] else "geometrically not good"
        return row | {"verdict": "not tried", "text": f"not tried in physics; {good}"}
    verdicts = plan.validation.verdicts[stage]
    text = verdicts.explain(grasp, [item.name for item in plan.objects])
    short = SHORT[Reason(int(verdicts.reason[grasp]))]
    if short == "held" and not held:
        short, text = "failed before", f"{text}; but a grasp that it continues did not hold"
    return row | {"verdict": short, "text": text}


def _number(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None


def _facts(plan: Plan, ranked: np.ndarray) -> list[tuple[str, str]]:
    """Names and values of the summary."""
    facts = [("Hand", f"{plan.hand.name} ({plan.hand.summary})" if plan.hand.summary else plan.hand.name)]
    facts.append(("Objects", ", then ".join(item.name for item in plan.objects)))
    if plan.validation is None:
        facts.append(("Protocol", "none: not tried in physics"))
        counts = [f"{int(s.good.sum())} of {len(s)} ({s.object_name})" for s in plan.stages]
        facts.append(("Good", ", ".join(counts)))
    else:
        facts.append(("Protocol", f"{plan.validation.protocol.name} ({plan.validation.protocol.summary})"))
        tried = plan.stages[: len(plan.validation.verdicts)]
        counts = [f"{int(plan.held(n).sum())} of {len(s)} ({s.object_name})" for n, s in enumerate(tried)]
        facts.append(("Hold", ", ".join(counts)))
    facts.append(("Seed", str(plan.settings.seed)))
    facts.append(("Shown", f"best {len(ranked)} of {len(plan.stages[-1])} grasps of {_last(plan)}"))
    return facts


def _last(plan: Plan) -> str:
    return plan.stages[-1].object_name


def _notes(plan: Plan) -> list[str]:
    """What a reader should know."""
    notes = []
    if plan.validation is not None and not plan.held(-1).any():
        notes.append(f"No grasp of {_last(plan)} holds; these are the nearest to it.")
    elif plan.validation is None and not plan.stages[-1].good.any():
        notes.append(f"No grasp of {_last(plan)} is geometrically good; these are the nearest to it.")
    if plan.stopped:
        notes.append(f"The plan stopped: {plan.stopped.rstrip('.')}.")
    if len(plan.stages) < len(plan.objects):
        rest = ", ".join(item.name for item in plan.objects[len(plan.stages) :])
        notes.append(f"Not reached: {rest}.")
    return notes


class _Surface(NamedTuple):
    """Vertices (V, 3), m, and faces (F, 3)."""

    vertices: np.ndarray
    faces: np.ndarray


def _with_meshes(
    plan: Plan, tolerance: float, record: dict[str, Any], blob: _Blob
) -> tuple[dict[str, Any], _Blob]:
    """All meshes, each once, which of them each body and object has, and a note of what was simplified."""
    blob = blob.copy()
    meshes: list[dict[str, Any]] = []
    place: dict[str, int] = {}
    lighter: list[str] = []

    def add(name: str, surface: _Surface) -> int:
        shown = _simplified(surface, tolerance)
        if len(shown.faces) < len(surface.faces):
            lighter.append(f"{name} from {len(surface.faces):,} to {len(shown.faces):,} triangles")
        meshes.append(_packed(shown, blob))
        return len(meshes) - 1

    bodies = [
        {"body": m.body, "mesh": add(plan.hand.model.bodies[m.body], _Surface(m.vertices_B, m.faces))}
        for m in hand_meshes(plan.hand)
    ]
    items = plan.objects[: len(plan.stages)]
    for item in items:
        if item.key not in place:
            place[item.key] = add(item.name, _Surface(item.vertices, item.faces))
    within = f"To keep this page small, surfaces are simplified within {1e3 * tolerance:.2g} mm"
    more = {
        "meshes": meshes,
        "bodies": bodies,
        "object_meshes": [place[item.key] for item in items],
        "notes": record["notes"] + ([f"{within}: {', '.join(lighter)}."] if lighter else []),
    }
    return record | more, blob


def _packed(surface: _Surface, blob: _Blob) -> dict[str, Any]:
    """Vertices as 16-bit steps across the bounding box; faces as differences, which zlib makes small."""
    lower = surface.vertices.min(axis=0)
    step = np.maximum(np.ptp(surface.vertices, axis=0), 1e-9) / 0xFFFF
    return {
        "origin": lower.tolist(),
        "step": step.tolist(),
        "vertices": blob.add(np.rint((surface.vertices - lower) / step), "uint16"),
        "faces": blob.add(np.diff(surface.faces.ravel().astype(np.int64), prepend=0), "int32"),
    }


def _simplified(surface: _Surface, tolerance: float) -> _Surface:
    """A surface with fewer triangles, within a tolerance (m); itself if it is light, or if that is 0."""
    if tolerance == 0.0 or len(surface.faces) <= HEAVY_FACES:
        return surface
    from manifold3d import Manifold, Mesh64

    # Copies, because manifold3d takes no arrays that are read-only.
    solid = Manifold(Mesh64(np.array(surface.vertices, float), np.array(surface.faces, np.uint64)))
    if solid.is_empty():  # The faces do not pair up.
        return _clustered(surface, tolerance)
    mesh = solid.simplify(tolerance).to_mesh64()
    faces = np.asarray(mesh.tri_verts, np.int64)
    return _Surface(np.asarray(mesh.vert_properties, float)[:, :3], faces) if len(faces) else surface


def _clustered(surface: _Surface, tolerance: float) -> _Surface:
    """The surface with all vertices in a cell as wide as the tolerance drawn together into their mean."""
    cells = np.floor(surface.vertices / tolerance).astype(np.int64)
    _, cluster, count = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    cluster = cluster.ravel()
    vertices = np.stack([np.bincount(cluster, axis) / count for axis in surface.vertices.T], axis=1)
    faces = cluster[surface.faces]
    a, b, c = faces.T
    kept = faces[(a != b) & (b != c) & (c != a)]
    return _Surface(vertices, kept) if len(kept) else surface
