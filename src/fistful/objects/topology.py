"""How triangles hang together: edges, bodies, orientation, holes. Index arithmetic only, no coordinates."""

from typing import NamedTuple

import numpy as np


class Edges(NamedTuple):
    """The undirected edges of a list of faces, counted separately for each body.

    Half-edge h = 3 f + s runs from corner s of face f to the next corner.
    """

    ends: np.ndarray  # (3F, 2) int: start and end vertex of each half-edge
    edge: np.ndarray  # (3F,) int: the edge of each half-edge, 0..E-1
    degree: np.ndarray  # (E,) int: number of half-edges on each edge
    net: (
        np.ndarray
    )  # (E,) int: how many more run up (low to high vertex) than down; 0 on a closed, oriented surface

    @property
    def open(self) -> np.ndarray:
        """(3F,) bool. Half-edges without any partner: the rim of a hole."""
        return self.degree[self.edge] == 1

    @property
    def closed(self) -> bool:
        """Whether every edge has two faces, which run along it in opposite directions."""
        return bool(np.all(self.degree == 2) and not np.any(self.net))


def edges_of(faces: np.ndarray, bodies: np.ndarray | None = None) -> Edges:
    """The edges of faces (F, 3); with body labels (F,), an edge of two bodies counts as two edges."""
    ends = faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
    low, high = np.minimum(*ends.T), np.maximum(*ends.T)
    index = _number(low * (int(faces.max(initial=0)) + 1) + high)
    if bodies is not None:
        index = _number(index * (int(bodies.max(initial=0)) + 1) + np.repeat(bodies, 3))
    count = np.bincount(index)
    up = np.where(ends[:, 0] == low, 1, -1)
    net = np.rint(np.bincount(index, weights=up)).astype(int)
    return Edges(ends, index, count, net)


def closed_bodies(faces: np.ndarray) -> np.ndarray:
    """The body of each face, (F,) int from 0: faces are joined across edges that have exactly two faces.

    An edge of more faces joins only what would leak without it: a fin on a closed box is a body of its own,
    two boxes that touch along an edge are two, but two rooms with a wall between them are one.
    """
    edges = edges_of(faces)
    first, second = _partners(edges)
    bodies = components(first // 3, second // 3, len(faces))
    crowded = edges.degree[edges.edge] > 2
    if crowded.any():
        leaky = crowded & np.repeat(leaks(faces, bodies)[bodies], 3)
        halves = np.flatnonzero(leaky)[np.argsort(edges.edge[leaky], kind="stable")]
        same = edges.edge[halves[1:]] == edges.edge[halves[:-1]]
        a, b = halves[:-1][same] // 3, halves[1:][same] // 3
        bodies = components(np.r_[first // 3, a], np.r_[second // 3, b], len(faces))
    return bodies


def leaks(faces: np.ndarray, bodies: np.ndarray) -> np.ndarray:
    """Whether each body has an edge along which its faces do not balance, (B,) bool."""
    edges = edges_of(faces, bodies)
    leaky = np.zeros(int(bodies.max(initial=-1)) + 1, bool)
    leaky[np.repeat(bodies, 3)[edges.net[edges.edge] != 0]] = True
    return leaky


def winding_flips(edges: Edges) -> np.ndarray | None:
    """Which faces to turn, (F,) bool, so that neighbours agree; the fewer of each body. None if impossible.

    Every face has two copies, as given (f) and turned (F + f). Copies that agree across an edge are joined.
    In an orientable body they fall into two components; if both copies of a face meet in one, the body is a
    Moebius strip.
    """
    count = len(edges.edge) // 3
    first, second = _partners(edges)
    f, g = first // 3, second // 3
    # Two half-edges of one edge agree if they run in opposite directions.
    turned = count * (edges.ends[first, 0] == edges.ends[second, 0])
    label = components(np.r_[f, f + count], np.r_[g + turned, g + count - turned], 2 * count)
    given, turned_copy = label[:count], label[count:]
    if np.any(given == turned_copy):
        return None
    body = components(f, g, count)
    chosen = np.zeros(body.max(initial=-1) + 1, dtype=label.dtype)
    chosen[body] = given
    other = given != chosen[body]
    minority = np.bincount(body, weights=other) * 2 > np.bincount(body)
    return other ^ minority[body]


class Hole(NamedTuple):
    """A closed rim."""

    rim: np.ndarray  # (n,) int: vertices, in the order that a patch's faces run along the rim
    body: int


def holes_of(edges: Edges, bodies: np.ndarray) -> list[Hole]:
    """The closed rims of half-edges without a partner; a rim that touches itself is cut into simple ones."""
    rims = []
    open_halves = np.flatnonzero(edges.open)
    open_halves = open_halves[np.argsort(bodies[open_halves // 3], kind="stable")]
    labels = bodies[open_halves // 3]
    for group in np.split(open_halves, np.flatnonzero(np.diff(labels)) + 1):
        onward: dict[int, list[int]] = {}
        # The patch runs against the half-edges of the surface.
        for end, start in edges.ends[group].tolist():
            onward.setdefault(start, []).append(end)
        body = int(bodies[group[0] // 3]) if len(group) else 0
        while onward:
            path = [next(iter(onward))]
            place = {path[0]: 0}
            while path and path[-1] in onward:
                ends = onward[path[-1]]
                here = ends.pop()
                if not ends:
                    del onward[path[-1]]
                if here in place:
                    rim = path[place[here] :]
                    rims.append(Hole(np.array(rim), body))
                    for vertex in rim[1:]:
                        del place[vertex]
                    del path[place[here] + 1 :]
                else:
                    place[here] = len(path)
                    path.append(here)
    return rims


def compact(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Only the vertices that faces use, in their order, and the faces renumbered."""
    used = np.zeros(len(vertices), bool)
    used[faces.ravel()] = True
    return vertices[used], (np.cumsum(used) - 1)[faces]


def _number(keys: np.ndarray) -> np.ndarray:
    """Each key's rank among the distinct keys."""
    return np.unique(keys, return_inverse=True)[1].reshape(-1)


def _partners(edges: Edges) -> tuple[np.ndarray, np.ndarray]:
    """The two half-edges of every edge that has exactly two."""
    paired = np.flatnonzero(edges.degree[edges.edge] == 2)
    paired = paired[np.argsort(edges.edge[paired], kind="stable")].reshape(-1, 2)
    return paired[:, 0], paired[:, 1]


def components(a: np.ndarray, b: np.ndarray, count: int) -> np.ndarray:
    """The connected component of each of `count` nodes, given edges from a (E,) to b (E,)."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    graph = coo_matrix((np.ones(len(a), np.int8), (a, b)), shape=(count, count))
    return connected_components(graph, directed=False)[1]
