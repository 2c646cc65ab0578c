"""A finished page made fit for a strict content security policy: no inline styles, nothing from elsewhere.

Inline `style` attributes become classes of the page's one style sheet, and the policy allows that sheet by its hash, as
`page.page` has allowed its scripts.
"""

from __future__ import annotations

import html
import re

import msgspec

from koordlite.report.html.page import digest

_TAG = re.compile(r"<[a-z][^<>]*? style=\"[^<>]*>")
_STYLE = re.compile(r' style="([^"]*)"')
_CLASS = re.compile(r' class="([^"]*)"')
_SHEET = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_META = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"<>]*)"/>')
_SCRIPTS = re.compile(r"; (script-src [^;]*)")


class Strict(msgspec.Struct, frozen=True):
    """A page and the policy it is served under."""

    text: str
    policy: str
    """Value of the header Content-Security-Policy."""

    @property
    def headers(self) -> dict[str, str]:
        """What the answer says beside the page."""
        return {"Content-Security-Policy": self.policy, "Referrer-Policy": "no-referrer"}


def strict(document: str, *, forms: bool = False) -> Strict:
    """`document`, made by `page.page`, without inline styles. `forms`: it may ask its own server by forms; its scripts
    always may.

    Text and attributes are escaped in such a page, so what looks like a tag is one.
    """
    names: dict[str, str] = {}
    body = _TAG.sub(lambda found: _classed(found[0], names), document)
    rules = "".join(f".{name}.{name}.{name}{{{html.unescape(style)}}}\n" for style, name in names.items())
    body = _SHEET.sub(lambda found: f"<style>{found[1]}{rules}</style>", body, count=1)
    return Strict(_META.sub("", body, count=1), _policy(body, forms=forms))


def _classed(tag: str, names: dict[str, str]) -> str:
    """The tag with a class in place of its style."""
    style = _STYLE.search(tag)
    if style is None:
        return tag
    name = names.setdefault(style[1], f"i{len(names)}")
    tag = _STYLE.sub("", tag, count=1)
    if _CLASS.search(tag):
        return _CLASS.sub(lambda found: f' class="{found[1]} {name}"', tag, count=1)
    return re.sub(r"^<[a-z0-9]+", lambda found: f'{found[0]} class="{name}"', tag)


def _policy(document: str, *, forms: bool) -> str:
    sheet, made = _SHEET.search(document), _META.search(document)
    style = f"'sha256-{digest(sheet[1])}'" if sheet else "'none'"
    action = "'self'" if forms else "'none'"
    scripts = _SCRIPTS.search(html.unescape(made[1])) if made else None
    runs = f"; {scripts[1]}; connect-src 'self'" if scripts else ""
    return f"default-src 'none'; style-src {style}; base-uri 'none'; form-action {action}; frame-ancestors 'none'{runs}"
