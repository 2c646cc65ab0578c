"""Faults of a program itself that ended rounds of its loop, as reports state them."""

from __future__ import annotations

import msgspec

from koordlite.model.errors import Problem


class Faults(msgspec.Struct, frozen=True):
    """What the loop has survived in this run."""

    total: int = 0
    in_a_row: int = 0
    """Rounds that ended so, up to and with this one; 0 when this round is well."""
    place: str = ""
    """Module and line of the last one."""
    error: str = ""
    """What the last one was: the name of the exception, and its words."""

    @property
    def why(self) -> str:
        """Why this round has no result, in words; empty when it is well."""
        if not self.in_a_row:
            return ""
        again = f", {self.in_a_row} rounds in a row" if self.in_a_row > 1 else ""
        return f"a fault of the program itself ended the round{again}: {self.error} at {self.place}"

    def problem(self, program: str) -> Problem:
        """The last one as something that its reader can act on."""
        do = "what is in force stays and the next round is tried; report it with the traceback in the log"
        return Problem(program, self.place, self.error, "a fault of the program itself ended the round", do)
