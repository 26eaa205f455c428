"""What was found and what was mended, said in plain sentences."""

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Statements:
    """Two lists that grow while a mesh is inspected, in the order of work; one sentence each."""

    found: list[str] = field(default_factory=list)
    mended: list[str] = field(default_factory=list)


def counted(number: int, noun: str) -> str:
    """The number with its noun, in the plural if need be: "1 hole", "2,000 faces", "3 bodies"."""
    number = int(number)
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"
