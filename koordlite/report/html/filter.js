(() => {
  const opened = new Map();
  function apply(field, typed) {
    const section = field.closest("section"), words = field.value.toLowerCase().split(" ").filter(word => word);
    const items = [...section.querySelectorAll("[data-item], details.group tbody tr")];
    for (const item of items) {
      const around = item.parentElement.closest("details.group");
      const text = ((around ? around.firstElementChild.textContent + " " : "") + item.textContent).toLowerCase();
      const tags = (item.dataset.item || "").toLowerCase().split(" ");
      item.hidden = !words.every(word => tags.includes(word) || text.includes(word));
    }
    for (const group of section.querySelectorAll("details.group")) {
      if (!opened.has(group)) opened.set(group, group.open);
      const found = items.some(item => !item.hidden && group.contains(item));
      group.hidden = words.length && !found;
      if (typed) group.open = words.length ? found : opened.get(group);
      if (!words.length) opened.delete(group);
    }
    const count = items.filter(item => !item.hidden).length;
    const said = words.length ? count + " of " + items.length : "", status = section.querySelector("[role=status]");
    if (status.textContent !== said) status.textContent = said;
    field.closest("p").hidden = false;
  }
  function all() {
    for (const field of document.querySelectorAll("input[data-filter]")) apply(field, false);
  }
  document.addEventListener("input", event => {
    if ("filter" in event.target.dataset) apply(event.target, true);
  }, true);
  document.addEventListener("click", event => {
    const link = event.target.closest("a[data-find]");
    if (!link) return;
    for (const field of document.querySelectorAll("input[data-filter]")) {
      field.value = link.dataset.find;
      apply(field, true);
    }
  });
  document.addEventListener("changed", all);
  all();
})();
