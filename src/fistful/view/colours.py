"""Colours that colour-blind people can tell apart: by Okabe and Ito, and by how light they are."""

RGB = tuple[float, float, float]

SEQUENCE: tuple[RGB, ...] = (
    (0.98, 0.84, 0.42),
    (0.93, 0.58, 0.25),
    (0.76, 0.31, 0.31),
    (0.48, 0.16, 0.40),
    (0.22, 0.09, 0.31),
)
"""Objects of a sequence, the first one lightest, as in the figures of the SeqGrasp paper."""

# Okabe and Ito.
ORANGE, SKY, GREEN, BLUE = (0.90, 0.62, 0.0), (0.35, 0.70, 0.90), (0.0, 0.62, 0.45), (0.0, 0.45, 0.70)
VERMILION, PURPLE, YELLOW = (0.84, 0.37, 0.0), (0.80, 0.47, 0.65), (0.94, 0.89, 0.26)

ACTIVE: RGB = (0.36, 0.55, 0.72)
"""Links that the stage at hand moves."""
FREE: RGB = (0.80, 0.84, 0.88)
"""Links that hold nothing yet, and the palm."""
FROZEN: RGB = (0.54, 0.54, 0.54)
"""Links that hold something already and do not move again."""
PENETRATING: RGB = (0.86, 0.08, 0.08)


def of_object(number: int) -> RGB:
    """Colour of the n-th object of a sequence, from 0."""
    return SEQUENCE[min(number, len(SEQUENCE) - 1)]
