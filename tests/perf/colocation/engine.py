"""The C program of this benchmark: compiled when it is needed, and asked how fast this machine is."""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import subprocess

SOURCE = pathlib.Path(__file__).with_name("engine.c")


def compile_engine(folder: pathlib.Path) -> pathlib.Path:
    """Path of the program, compiled anew when its source has changed. RuntimeError when there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise RuntimeError("there is no C compiler: on Debian or Ubuntu, as root: apt-get install gcc libc6-dev")
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    program = folder / f"engine-{digest}"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        aside = program.with_suffix(".new")
        command = [compiler, "-O2", "-Wall", "-Wextra", "-pthread", "-o", str(aside), str(SOURCE), "-lm"]
        compiled = subprocess.run(command, capture_output=True, text=True, check=False)
        if compiled.returncode:
            raise RuntimeError(f"{' '.join(command)}: {compiled.stderr.strip()}")
        aside.replace(program)
    return program


def iteration_ns(program: pathlib.Path, work: str, kib: int) -> float:
    """Nanoseconds of one step of the service's work while nothing else runs."""
    command = [str(program), "calibrate", work, str(kib)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
