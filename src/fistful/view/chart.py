"""A page with the tables of an evaluation: bars with intervals as SVG, no script, no network."""

from html import escape
from typing import Any

from fistful.planning.evaluation import PUBLISHED

# Okabe and Ito's colours, which colour-blind people can tell apart.
COLOURS = {"seqgrasp": "#0072b2", "seqgrasp-paper": "#56b4e9", "multigrasp": "#e69f00"}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 880, 320, 50, 40, 20


def evaluation_page(tables: dict[str, Any]) -> str:
    """One HTML document of the tables that planning.evaluation makes. No I/O."""
    rows, protocol = tables["rows"], tables["protocol"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
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
    for key, title in (("sr", "Conditional success rate"), ("sr_chained", "Chained success rate")):
        parts += [f"<h2>{title}, %</h2>", _bars(rows, methods, key)]
    parts += ["<h2>Table</h2>", _method_table(rows)]
    if tables["opposition_spaces"]:
        columns = ["method", "opposition_space", "valid", "generated", "sr"]
        parts += ["<h2>By opposition space</h2>", _table(tables["opposition_spaces"], columns)]
        columns = ["method", "n", "consumed", "valid", "consumed_rate"]
        parts += ["<h2>Hands that are full</h2>", _table(tables["consumed"], columns)]
    listed = "".join(f"<li>{escape(', '.join(s))}</li>" for s in tables["sequences"])
    parts += [f"<h2>Sequences</h2><ol>{listed}</ol>"]
    return "\n".join(parts) + "\n"


def _bars(rows: list[dict[str, Any]], methods: list[str], key: str) -> str:
    """Groups of bars, one group for each number of objects, one bar for each method."""
    numbers = sorted({row["n"] for row in rows})
    group = (WIDTH - LEFT) / len(numbers)
    bar = 0.8 * group / len(methods)

    def y(percent: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - percent / 100)

    svg = [f"<svg viewBox='0 0 {WIDTH} {HEIGHT + 24}' role='img' font-size='13'>"]
    for percent in range(0, 101, 20):
        svg.append(
            f"<line x1='{LEFT}' x2='{WIDTH}' y1='{y(percent):.1f}' y2='{y(percent):.1f}' stroke='#ddd'/>"
        )
        svg.append(f"<text x='{LEFT - 8}' y='{y(percent) + 4:.1f}' text-anchor='end'>{percent}</text>")
    for row in rows:
        x = LEFT + numbers.index(row["n"]) * group + 0.1 * group + methods.index(row["method"]) * bar
        colour, value = COLOURS.get(row["method"], "#999"), row[key]
        low, high = row[f"{key}_interval"]
        middle = x + bar / 2
        svg.append(
            f"<rect x='{x:.1f}' y='{y(value):.1f}' width='{0.9 * bar:.1f}' height='{y(0) - y(value):.1f}' "
            f"fill='{colour}'><title>{escape(row['method'])}, n = {row['n']}: {value:.1f} %</title></rect>"
            f"<line x1='{middle:.1f}' x2='{middle:.1f}' y1='{y(low):.1f}' y2='{y(high):.1f}' stroke='#222'/>"
            f"<text x='{middle:.1f}' y='{y(high) - 5:.1f}' text-anchor='middle'>{value:.1f}</text>"
        )
        theirs = PUBLISHED.get((row["method"].removesuffix("-paper"), row["n"]))
        if theirs is not None and key == "sr":
            for printed in theirs[0]:
                svg.append(
                    f"<text x='{middle:.1f}' y='{y(printed) + 5:.1f}' text-anchor='middle'>&#9671;</text>"
                )
    for k, n in enumerate(numbers):
        label = f"{n} object{'s' * (n > 1)}"
        middle = LEFT + (k + 0.5) * group
        svg.append(f"<text x='{middle:.1f}' y='{HEIGHT - BOTTOM + 20}' text-anchor='middle'>{label}</text>")
    for k, method in enumerate(methods):
        x = LEFT + 170 * k
        colour = COLOURS.get(method, "#999")
        svg.append(f"<rect x='{x}' y='{HEIGHT + 4}' width='13' height='13' fill='{colour}'/>")
        svg.append(f"<text x='{x + 20}' y='{HEIGHT + 15}'>{escape(method)}</text>")
    return "".join(svg) + "</svg>"


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
