"""The tables of an evaluation as a page (no script, no network) and as a picture, with the same bars."""

from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fistful.planning.evaluation import PUBLISHED

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

# Okabe and Ito's colours, which colour-blind people can tell apart.
COLOURS = {"seqgrasp": "#0072b2", "seqgrasp-paper": "#56b4e9", "multigrasp": "#e69f00"}
INK = "#222"
# Units of a chart: pixels of the page at its own size.
WIDTH, HEIGHT, LEFT, TOP, FLOOR = 880, 344, 50, 20, 280
FONT, MARGIN = 13.0, 24
SCALE = 2
"""Pixels of the picture for each unit."""
CHARTS = (("sr", "Conditional success rate"), ("sr_chained", "Chained success rate"))


class Rect(NamedTuple):
    """A filled rectangle by its upper left corner; `title` is shown to who points at it."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    title: str = ""


class Line(NamedTuple):
    """A line between two points."""

    x1: float
    y1: float
    x2: float
    y2: float
    stroke: str
    width: float = 1.0


class Text(NamedTuple):
    """A line of text; (x, y) is on its base line."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    size: float = FONT


Primitive = Rect | Line | Text


def evaluation_page(tables: dict[str, Any]) -> str:
    """One HTML document of the tables that planning.evaluation makes. No I/O."""
    rows, protocol = tables["rows"], tables["protocol"]
    parts = [
        "<!doctype html><meta charset='utf-8'><title>fistful: evaluation</title>",
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;"
        "padding:0 1em;color:#222}"
        "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;text-align:right}"
        "th{border-bottom:1px solid #999}td:first-child,th:first-child{text-align:left}"
        "tr:nth-child(even) td{background:#f5f5f5}</style>",
        "<h1>Sequential and simultaneous grasps</h1>",
        f"<p>Protocol <b>{escape(protocol['name'])}</b>: {escape(protocol['summary'])}. "
        f"{len(tables['sequences'])} sequences, {tables['count']} grasps a stage, seed {tables['seed']}. "
        "Whiskers are 95 % intervals by a bootstrap over sequences; diamonds are the paper's figures, which "
        "are from another simulator and other objects.</p>",
    ]
    for key, title in CHARTS:
        parts += [f"<h2>{title}, %</h2>", _svg(bars(rows, key))]
    parts += ["<h2>Table</h2>", _method_table(rows)]
    if tables["opposition_spaces"]:
        columns = ["method", "opposition_space", "valid", "generated", "sr"]
        parts += ["<h2>By opposition space</h2>", _table(tables["opposition_spaces"], columns)]
        columns = ["method", "n", "consumed", "valid", "consumed_rate"]
        parts += ["<h2>Hands that are full</h2>", _table(tables["consumed"], columns)]
    listed = "".join(f"<li>{escape(', '.join(s))}</li>" for s in tables["sequences"])
    parts += [f"<h2>Sequences</h2><ol>{listed}</ol>"]
    return "\n".join(parts) + "\n"


def bars(rows: list[dict[str, Any]], key: str) -> list[Primitive]:
    """Bars on WIDTH x HEIGHT: one group for each number of objects, one bar for each method. No I/O.

    Args:
      rows: Rows of the tables.
      key: Which rate, in percent: "sr" or "sr_chained".
    """
    methods = list(dict.fromkeys(row["method"] for row in rows))
    numbers = sorted({row["n"] for row in rows})
    group = (WIDTH - LEFT) / len(numbers)
    bar = 0.8 * group / len(methods)
    size = min(13.0, 0.42 * bar)

    def y(percent: float) -> float:
        return TOP + (FLOOR - TOP) * (1 - percent / 100)

    drawn: list[Primitive] = []
    for percent in range(0, 101, 20):
        drawn.append(Line(LEFT, y(percent), WIDTH, y(percent), "#ddd"))
        drawn.append(Text(LEFT - 8, y(percent) + 4, str(percent), "end"))
    compared = False
    for row in rows:
        x = LEFT + numbers.index(row["n"]) * group + 0.1 * group + methods.index(row["method"]) * bar
        value, (low, high) = row[key], row[f"{key}_interval"]
        middle = x + 0.45 * bar
        title = f"{row['method']}, n = {row['n']}: {value:.1f} %"
        drawn.append(Rect(x, y(value), 0.9 * bar, y(0) - y(value), _colour(row["method"]), title))
        drawn.append(Line(middle, y(low), middle, y(high), INK))
        drawn.append(Text(middle, y(high) - 5, f"{value:.1f}", "middle", size))
        theirs = PUBLISHED.get((row["method"].removesuffix("-paper"), row["n"]))
        if theirs is not None and key == "sr":
            compared = True
            # At the bar's edge, clear of the whisker and the value above it.
            for printed in theirs[0]:
                drawn += _diamond(x + 0.08 * bar, y(printed))
    for k, n in enumerate(numbers):
        label = f"{n} object{'s' * (n > 1)}"
        drawn.append(Text(LEFT + (k + 0.5) * group, FLOOR + 20, label, "middle"))
    for k, method in enumerate(methods):
        x = LEFT + 170 * k
        drawn.append(Rect(x, HEIGHT - 20, 13, 13, _colour(method)))
        drawn.append(Text(x + 20, HEIGHT - 9, method))
    if compared:
        x = LEFT + 170 * len(methods)
        drawn += _diamond(x + 6, HEIGHT - 13.5)
        drawn.append(Text(x + 20, HEIGHT - 9, "the paper's figures"))
    return drawn


def _colour(method: str) -> str:
    return COLOURS.get(method, "#999")


def _diamond(x: float, y: float, r: float = 4.5) -> list[Primitive]:
    corners = ((x, y - r), (x + r, y), (x, y + r), (x - r, y))
    sides = [(*corners[k], *corners[(k + 1) % 4]) for k in range(4)]
    # White around the ink, which is hard to see on dark bars.
    return [Line(*side, stroke, width) for stroke, width in (("#fff", 4.0), (INK, 1.2)) for side in sides]


def _svg(drawn: list[Primitive]) -> str:
    parts = [f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' font-size='{FONT:g}'>"]
    for p in drawn:
        if isinstance(p, Rect):
            title = f"<title>{escape(p.title)}</title>" if p.title else ""
            parts.append(
                f"<rect x='{p.x:.1f}' y='{p.y:.1f}' width='{p.width:.1f}' height='{p.height:.1f}' "
                f"fill='{p.fill}'>{title}</rect>"
            )
        elif isinstance(p, Line):
            parts.append(
                f"<line x1='{p.x1:.1f}' y1='{p.y1:.1f}' x2='{p.x2:.1f}' y2='{p.y2:.1f}' stroke='{p.stroke}'"
                + ("/>" if p.width == 1 else f" stroke-width='{p.width:g}'/>")
            )
        else:
            size = "" if p.size == FONT else f" font-size='{p.size:.1f}'"
            parts.append(
                f"<text x='{p.x:.1f}' y='{p.y:.1f}' text-anchor='{p.anchor}'{size}>{escape(p.text)}</text>"
            )
    return "".join(parts) + "</svg>"


def evaluation_picture(tables: dict[str, Any]) -> "Image.Image":
    """The bars of an evaluation below each other, as the page has them. No I/O."""
    from PIL import Image, ImageDraw

    head, protocol = 46, tables["protocol"]
    said = (
        f"Protocol {protocol['name']}, {len(tables['sequences'])} sequences, {tables['count']} grasps a stage"
        "; whiskers are 95 % intervals by a bootstrap over sequences"
    )
    width, height = WIDTH + 2 * MARGIN, len(CHARTS) * (HEIGHT + head) + 2 * MARGIN + 24
    picture = Image.new("RGB", (SCALE * width, SCALE * height), "white")
    draw = ImageDraw.Draw(picture)
    top = float(MARGIN)
    for key, title in CHARTS:
        _paint(draw, [Text(0, 30, f"{title}, %", "start", 18.0)], MARGIN, top)
        _paint(draw, bars(tables["rows"], key), MARGIN, top + head)
        top += HEIGHT + head
    _paint(draw, [Text(0, 24, said)], MARGIN, top)
    return picture


def _paint(draw: "ImageDraw.ImageDraw", drawn: list[Primitive], x0: float, y0: float) -> None:
    """Primitives with their origin at (x0, y0), each unit SCALE pixels."""
    from PIL import ImageFont

    def at(*xy: float) -> list[float]:
        return [SCALE * (c + o) for c, o in zip(xy, (x0, y0) * 2, strict=False)]

    for p in drawn:
        if isinstance(p, Rect):
            # Pillow paints both corners' pixels: what has no height would still be a line.
            if p.width * p.height > 0:
                draw.rectangle(at(p.x, p.y, p.x + p.width, p.y + p.height), fill=p.fill)
        elif isinstance(p, Line):
            draw.line(at(p.x1, p.y1, p.x2, p.y2), fill=p.stroke, width=round(SCALE * p.width))
        else:
            anchor = {"start": "ls", "middle": "ms", "end": "rs"}[p.anchor]
            font = ImageFont.load_default(SCALE * p.size)
            x, y = at(p.x, p.y)
            draw.text((x, y), p.text, fill=INK, font=font, anchor=anchor)


def _method_table(rows: list[dict[str, Any]]) -> str:
    records = []
    for row in rows:
        theirs = PUBLISHED.get((row["method"].removesuffix("-paper"), row["n"]))
        printed = {} if theirs is None else {"paper SR %": " / ".join(f"{v:.1f}" for v in theirs[0])}
        records.append(
            {
                "method": row["method"],
                "objects": row["n"],
                "generated": row["generated"],
                "valid": row["valid"],
                "SR %": row["sr"],
                "chained %": row["sr_chained"],
                "penetration mm": row["penetration_mm"],
                "diversity rad": row["diversity_rad"],
                "CPU s / 256": row["seconds_per_256"],
                "paper SR %": "",
            }
            | printed
        )
    return _table(records, list(records[0]))


def _table(records: list[dict[str, Any]], columns: list[str]) -> str:
    def cell(value: Any) -> str:
        return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)

    head = "".join(f"<th>{escape(c.replace('_', ' '))}</th>" for c in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell(r[c]))}</td>' for c in columns)}</tr>" for r in records)
    return f"<table><tr>{head}</tr>{body}</table>"
