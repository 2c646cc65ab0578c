"""A field that hides what does not have the words typed into it, in a page without a server."""

from __future__ import annotations

from koordlite.report.html.page import Markup, el

SCRIPT = """
for (const field of document.querySelectorAll("input[data-filter]")) {
  const section = field.closest("section"), said = section.querySelector("[role=status]");
  const groups = [...section.querySelectorAll("details.group")];
  const items = [...section.querySelectorAll("[data-item], details.group tbody tr")].map(item => {
    const around = item.parentElement.closest("details.group");
    return [item, ((around ? around.firstElementChild.textContent + " " : "") + item.textContent).toLowerCase()];
  });
  const opened = new Map();
  field.closest("p").hidden = false;
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(" ").filter(word => word);
    let count = 0;
    for (const [item, text] of items) {
      item.hidden = !words.every(word => text.includes(word));
      if (!item.hidden) count++;
    }
    for (const group of groups) {
      if (!opened.has(group)) opened.set(group, group.open);
      const found = items.some(([item]) => !item.hidden && group.contains(item));
      group.hidden = !found;
      group.open = words.length ? found : opened.get(group);
      if (!words.length) opened.delete(group);
    }
    said.textContent = words.length ? count + " of " + items.length : "";
  });
}
"""
"""Looks at `[data-item]` and at rows of tables in `details.group` of the section of the field. A group counts as part
of what is in it, and is open while something is looked for."""


def field(label: str) -> Markup:
    """The field, invisible until the script works. At most one to a section."""
    box = el("input", type="search", data_filter="", aria_label=label, placeholder=label, autocomplete="off")
    return el("p", box, " ", el("span", role="status", class_="note"), class_="filter", hidden="")


def group(summary: str, *body: Markup, note: str = "") -> Markup:
    """A collapsed part of the list; `note` is in the summary, in small print."""
    words = [el("b", summary), el("span", f" {note}", class_="note") if note else None]
    return el("details", el("summary", words), *body, class_="group")
