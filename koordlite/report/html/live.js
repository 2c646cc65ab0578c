(() => {
  const said = document.querySelector("[data-refresh]"), every = said.dataset.refresh * 1000;
  const sheet = new CSSStyleSheet();
  let timer = 0, asking = false, since = "";

  const named = node => node.nodeType === 1 && (node.id || (node.firstElementChild
    && node.matches("section, article, details, tr, li") ? node.nodeName + node.firstElementChild.textContent : ""));

  function change(old, to) {
    if (old.nodeType !== 1) {
      if (old.data !== to.data) old.data = to.data;
    } else if (old.getAttribute("role") !== "status") {
      for (const {name} of [...old.attributes])
        if (!to.hasAttribute(name) && name !== "open" && name !== "hidden") old.removeAttribute(name);
      for (const {name, value} of to.attributes)
        if (old.getAttribute(name) !== value && name !== "open" && name !== "hidden") old.setAttribute(name, value);
      changeChildren(old, [...to.childNodes]);
    }
  }

  function changeChildren(parent, wanted) {
    const names = new Set(wanted.map(named)), byName = new Map(), others = [];
    for (const node of parent.childNodes) {
      const name = named(node);
      if (name && names.has(name) && !byName.has(name)) byName.set(name, node);
      else others.push(node);
    }
    const kept = wanted.map(to => {
      const name = named(to), same = byName.get(name);
      if (same) { byName.delete(name); return same; }
      const at = others.findIndex(node => node.nodeName === to.nodeName);
      return at < 0 ? null : others.splice(at, 1)[0];
    });
    for (const node of others) node.remove();
    let place = parent.firstChild;
    wanted.forEach((to, number) => {
      const old = kept[number];
      if (!old) { parent.insertBefore(document.importNode(to, true), place); return; }
      if (old === place) place = place.nextSibling;
      else parent.insertBefore(old, place);
      change(old, to);
    });
  }

  function show(text) {
    const [before, style, after] = text.split(/<\/?style>/), focus = document.activeElement;
    const fresh = new DOMParser().parseFromString(before + after, "text/html");
    sheet.replaceSync(style);
    document.adoptedStyleSheets = [sheet];
    document.querySelector("style").disabled = true;
    document.title = fresh.title;
    for (const part of ["header", "main", "footer"]) {
      const [old, to] = [document, fresh].map(page => page.querySelector("body > " + part));
      if (old && to) change(old, to);
    }
    if (document.activeElement !== focus && focus.isConnected) focus.focus({preventScroll: true});
    document.dispatchEvent(new Event("changed"));
  }

  async function read() {
    try {
      const answer = await fetch(location.href, {cache: "no-store", signal: AbortSignal.timeout(10000)});
      const text = await answer.text();
      return answer.ok ? [text, ""] : ["", "The server answers " + answer.status];
    } catch (error) { return ["", "Not reachable"]; }
  }

  async function refresh() {
    clearTimeout(timer);
    if (asking || document.hidden) return;
    asking = true;
    const [text, wrong] = await read();
    asking = false;
    if (text) show(text);
    since = wrong && (since || new Date().toISOString().slice(11, 19) + " UTC");
    const words = wrong && wrong + " since " + since + ". What is shown is from before; trying again.";
    if (said.textContent !== words) said.textContent = words;
    timer = setTimeout(refresh, every);
  }

  document.addEventListener("visibilitychange", refresh);
  timer = setTimeout(refresh, every);
})();
