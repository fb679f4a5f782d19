"""What was measured of this machine, kept as one file with its provenance; a damaged or foreign file counts as none."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import ResourceError
from localspec.models.plan.machine import Points, Rates
from localspec.sanitize import shown
from localspec.settings.stores import read_stored, write_stored

SCHEMA = "localspec.machine/1"
FILE = "rates.json"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement: `device` by name and description, the weights' type, rows of a pass, bytes a second."""

    device: str
    description: str
    type: str
    rows: int
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """All figures, the day they were measured (ISO), and the llama.cpp that was measured with."""

    measured: str
    llama_cpp: str
    figures: tuple[Figure, ...]
    schema: str = SCHEMA

    def rates(self, name: str, description: str) -> Rates | None:
        """Return the rates of a device, None where another one, or none, was measured under its name."""
        points: dict[str, list[tuple[int, float]]] = {}
        for figure in self.figures:
            if (figure.device, figure.description) == (name, description):
                points.setdefault(figure.type, []).append((figure.rows, figure.bytes_per_s))
        ordered: Mapping[str, Points] = {kind: tuple(sorted(measured)) for kind, measured in points.items()}
        return Rates(ordered, f"measured {self.measured}") if ordered else None


def load(folder: Path) -> Calibration | None:
    stored = read_stored(folder / FILE, Calibration)
    if stored is None or stored.schema != SCHEMA:
        return None
    is_sound = all(figure.rows >= 1 and 0 < figure.bytes_per_s < 1e18 for figure in stored.figures)
    return stored if is_sound else None


def store(folder: Path, calibration: Calibration) -> Path:
    path = folder / FILE
    try:
        write_stored(path, calibration)
    except OSError as error:
        raise ResourceError(
            f"the figures cannot be kept in {shown(folder)}: {error.strerror or error}",
            hint="free some space, or keep them elsewhere with LOCALSPEC_HOME=FOLDER",
        ) from error
    return path
