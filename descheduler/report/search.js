// Finds pods that the page does not list at length: they come packed, and are unpacked when something is looked for.
(() => {
  const most = 50, unpacked = new Map();
  async function rows(box) {
    if (!unpacked.has(box)) {
      const packed = Uint8Array.from(atob(box.dataset.packed), one => one.charCodeAt(0));
      const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
      unpacked.set(box, (await new Response(stream).text()).split("\n").map(line => line.split("\t")));
    }
    return unpacked.get(box);
  }
  async function find(field) {
    const box = field.closest("section").querySelector("[data-packed]");
    if (!box) return;
    const text = field.value, words = text.toLowerCase().split(" ").filter(word => word);
    const lines = words.length ? await rows(box) : [];
    if (field.value !== text) return;
    const found = lines.filter(([pod, node, owner, said]) => {
      const tags = ["namespace:" + pod.split("/")[0], "node:" + node, "owner:" + owner].map(one => one.toLowerCase());
      const all = [pod, node, owner, said].join(" ").toLowerCase();
      return words.every(word => tags.includes(word) || all.includes(word));
    });
    const list = box.querySelector("ul"), items = found.slice(0, most).map(([pod, node, owner, said]) => {
      const item = document.createElement("li");
      item.textContent = pod + " on " + node + ", " + owner + ": " + said;
      return item;
    });
    list.replaceChildren(...items);
    const more = found.length > most ? "; the first " + most + " are shown, more words find fewer" : "";
    box.querySelector("p").textContent = words.length ? found.length + " more of " + lines.length + more : box.dataset.note;
  }
  document.addEventListener("input", event => {
    if ("filter" in event.target.dataset) find(event.target);
  }, true);
  document.addEventListener("click", event => {
    if (event.target.closest("a[data-find]")) document.querySelectorAll("input[data-filter]").forEach(find);
  });
})();
