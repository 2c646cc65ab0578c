"""Histograms of the use of pods and of the node, kept in the state folder so that a restart does not lose it."""

from __future__ import annotations

from pathlib import Path

from koordlite.host import state_folder
from koordlite.model.errors import InputError, Problem

NAME = "predictions.json"


def read(folder: Path) -> bytes | None:
    """Contents of the file; None when there are none. InputError when the file cannot be read."""
    try:
        return state_folder.read(folder / NAME)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(problem(folder, str(error))) from error


def write(folder: Path, content: bytes) -> None:
    """Replace it as a whole. OSError when the folder cannot be written."""
    state_folder.replace(folder / NAME, content)


def problem(folder: Path, why: str) -> Problem:
    """Problem with the file."""
    return Problem(str(folder / NAME), "file", "", why, "remove it; what pods need is learnt again, which takes a day")
