"""Who asks: bearer tokens and impersonation."""

from __future__ import annotations

import dataclasses

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """An identity with its groups."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    audiences: tuple[str, ...] = ()
    """What the token is bound to; empty: to the server itself."""

    def authenticated(self) -> User:
        """The user as somebody whose token was accepted."""
        if AUTHENTICATED in self.groups:
            return self
        return dataclasses.replace(self, groups=(*self.groups, AUTHENTICATED))


ADMIN = User("admin", (MASTERS, AUTHENTICATED), "admin")
ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
