// Search, filter by reason, sort and step through the documents. Without script all of them are there, in order.
const articles = [...document.querySelectorAll("article")];
const main = document.querySelector("main");
const list = document.querySelector(".index ol");
const bar = document.querySelector(".bar");
const search = document.getElementById("search");
const sort = document.getElementById("sort");
const hide = document.getElementById("hide");
const chips = [...document.querySelectorAll(".chips button")];
const place = document.getElementById("place");
const entries = new Map(articles.map((article) => {
  const entry = document.querySelector(`.index a[href="#${article.id}"]`);
  return [article, {
    link: entry,
    text: article.textContent.toLowerCase(),
    reasons: JSON.parse(article.dataset.reasons),
    scores: JSON.parse(article.dataset.scores),
    dropped: Number(article.dataset.dropped),
  }];
}));
let order = articles;
let visible = articles;
let current = articles[0];
let stepped = false;

function show(article) {
  entries.get(current).link.classList.remove("current");
  current.classList.remove("current");
  current = article;
  current.classList.add("current");
  const { link } = entries.get(current);
  link.classList.add("current");
  const nav = list.parentElement;
  if (link.offsetTop < nav.scrollTop || link.offsetTop > nav.scrollTop + nav.clientHeight - 60) {
    nav.scrollTop = link.offsetTop - nav.clientHeight / 2;
  }
  tell();
}

function tell() {
  const at = visible.indexOf(current);
  place.textContent = visible.length ? `${at < 0 ? "–" : at + 1} / ${visible.length}` : "none";
}

function step(by) {
  const at = visible.indexOf(current);
  const target = visible[Math.min(Math.max(at < 0 ? 0 : at + by, 0), visible.length - 1)];
  if (!target) return;
  stepped = true;
  show(target);
  target.scrollIntoView({ block: "start" });
  target.focus({ preventScroll: true });
}

function update() {
  const words = search.value.trim().toLowerCase();
  const wanted = chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.dataset.reason);
  const bare = hide?.checked;
  document.body.classList.toggle("hide-dropped", Boolean(bare));
  visible = order.filter((article) => {
    const { text, reasons } = entries.get(article);
    const chosen = !wanted.length || wanted.some((reason) => (reason ? reasons.includes(reason) : !reasons.length));
    return chosen && (!words || text.includes(words)) && !(bare && article.classList.contains("gone"));
  });
  const left = new Set(visible);
  for (const article of articles) {
    article.hidden = !left.has(article);
    entries.get(article).link.parentElement.hidden = article.hidden;
  }
  document.getElementById("none").hidden = visible.length > 0;
  if (visible.length && !left.has(current)) show(visible[0]);
  tell();
  mark(words);
}

// Marks what was found without changing the page, where the browser can do that.
function mark(words) {
  if (!globalThis.CSS?.highlights) return;
  CSS.highlights.delete("found");
  if (words.length < 2) return;
  const ranges = [];
  for (const article of visible) {
    const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    while (walker.nextNode() && ranges.length < 5000) {
      const text = walker.currentNode.data.toLowerCase();
      // a letter may have another length in lower case: then places do not agree
      if (text.length !== walker.currentNode.data.length) continue;
      for (let at = text.indexOf(words); at >= 0; at = text.indexOf(words, at + words.length)) {
        const range = new Range();
        range.setStart(walker.currentNode, at);
        range.setEnd(walker.currentNode, at + words.length);
        ranges.push(range);
      }
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
}

function reorder() {
  const [name, way] = sort.value.split(",");
  const value = (article) => {
    const entry = entries.get(article);
    return name === "dropped" ? entry.dropped : entry.scores[name]?.[way === "up" ? 0 : 1];
  };
  const measured = articles.filter((article) => name && value(article) !== undefined);
  measured.sort((a, b) => (way === "up" ? 1 : -1) * (value(a) - value(b)));
  order = [...measured, ...articles.filter((article) => !measured.includes(article))];
  main.append(...order);
  list.append(...order.map((article) => entries.get(article).link.parentElement));
  update();
  if (visible.length) {
    show(visible[0]);
    scrollTo({ top: Math.min(scrollY, bar.offsetTop) });
  }
}

// The document below the bar is the current one, unless a step chose it: the last ones cannot reach the top.
function follow() {
  if (stepped || !visible.length) return;
  const line = bar.getBoundingClientRect().bottom + 40;
  show(visible.find((article) => article.getBoundingClientRect().bottom > line) ?? visible.at(-1));
}

if (articles.length) {
  let waiting = 0;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(update, 120); });
  sort.addEventListener("change", reorder);
  hide?.addEventListener("change", update);
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", chip.getAttribute("aria-pressed") !== "true");
      update();
    });
  }
  document.getElementById("next").addEventListener("click", () => step(1));
  document.getElementById("previous").addEventListener("click", () => step(-1));
  list.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link) return;
    stepped = true;
    show(document.getElementById(link.hash.slice(1)));
  });
  for (const moved of ["wheel", "touchmove", "pointerdown"]) {
    addEventListener(moved, (event) => { stepped = stepped && Boolean(event.target.closest?.(".steps, .index")); }, { passive: true });
  }
  addEventListener("scroll", follow, { passive: true });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, pre")) {
      if (event.key === "Escape") { search.value = ""; update(); event.target.blur(); }
      return;
    }
    const actions = {
      j: () => step(1), ArrowRight: () => step(1), k: () => step(-1), ArrowLeft: () => step(-1),
      "/": () => search.focus(), d: () => hide?.click(),
      PageDown: null, PageUp: null, " ": null, Home: null, End: null,
    };
    if (!(event.key in actions)) return;
    if (actions[event.key]) { event.preventDefault(); actions[event.key](); } else { stepped = false; }
  });
  const size = () => document.documentElement.style.setProperty("--bar", `${bar.offsetHeight}px`);
  size();
  addEventListener("resize", size);
  show(current);
}
