"""A heat map of scores over pad stiffness and friction."""

from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fistful.view.strain import ramp

CELL_WIDTH, CELL_HEIGHT, LEFT, TOP, GAP = 96, 52, 120, 88, 60


def heat_map(result: dict[str, Any], key: str = "mae", title: str = "MAE of robustness") -> Image.Image:
    """One table a pad shape, light to dark as the value grows, with the numbers written in. No I/O."""
    cells = result["cells"]
    shapes = list(dict.fromkeys(c["pad"] for c in cells))
    moduli = sorted({c["youngs_modulus"] for c in cells})
    frictions = sorted({c["friction"] for c in cells})
    values = [c[key] for c in cells if c[key] is not None and np.isfinite(c[key])]
    # From 0, so that small differences look small.
    high = max(values, default=1.0)
    block = len(frictions) * CELL_WIDTH + GAP
    picture = Image.new("RGB", (LEFT + len(shapes) * block, TOP + len(moduli) * CELL_HEIGHT + 40), "white")
    draw, font, bold = ImageDraw.Draw(picture), ImageFont.load_default(17), ImageFont.load_default(20)
    draw.text((LEFT, 8), f"{title} (F1 below)", "black", bold)
    for row, E in enumerate(moduli):
        y = TOP + (row + 0.5) * CELL_HEIGHT
        draw.text((LEFT - 10, y), f"{E:.0e} Pa", "black", font, anchor="rm")
    for s, shape in enumerate(shapes):
        x0 = LEFT + s * block
        draw.text((x0, TOP - 52), f"{shape} pads", "black", font)
        for column, mu in enumerate(frictions):
            x = x0 + (column + 0.5) * CELL_WIDTH
            draw.text((x, TOP - 14), f"mu {mu:g}", "black", font, anchor="mm")
        for cell in (c for c in cells if c["pad"] == shape):
            x = x0 + frictions.index(cell["friction"]) * CELL_WIDTH
            y = TOP + moduli.index(cell["youngs_modulus"]) * CELL_HEIGHT
            at = cell[key] / high if high > 0 else 0.0
            colour = ramp(at)
            fill = tuple(round(255 * c) for c in colour)
            ink = "black" if np.mean(colour) > 0.5 else "white"
            draw.rectangle((x, y, x + CELL_WIDTH - 2, y + CELL_HEIGHT - 2), fill=fill)
            middle = x + CELL_WIDTH / 2 - 1
            draw.text((middle, y + 17), f"{cell[key]:.3f}", ink, font, anchor="mm")
            draw.text((middle, y + 36), f"F1 {cell['f1']:.2f}", ink, ImageFont.load_default(13), anchor="mm")
    return picture
