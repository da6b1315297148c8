// The frame that pages of every kind share. Whatever comes from a record reaches the page as text
// (textContent, setAttribute on names of our own), never as markup.

const data = JSON.parse(document.getElementById("data").textContent);

// --- elements and words -------------------------------------------------------------------------

/** An element with a class, and children that are elements or text. */
function el(tag, name = "", ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

/** The same for SVG, with attributes; all of them are ours. */
function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes as people read them, in the words of the terminal report. */
function size(bytes) {
  if (bytes < 1024) return count(bytes, "byte");
  let value = bytes;
  for (const unit of UNITS) {
    value /= 1024;
    if (value < 1023.95 || unit === UNITS.at(-1)) {
      return `${value.toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} ${unit}`;
    }
  }
}

function number(value) {
  return value.toLocaleString("en-US", { maximumSignificantDigits: Number.isInteger(value) ? 21 : 3 });
}

function count(value, noun, plural = `${noun}s`) {
  return `${number(value)} ${value === 1 ? noun : plural}`;
}

/** A table of a record, {columns, rows}, as objects. */
function objects(table) {
  return table.rows.map((row) => Object.fromEntries(table.columns.map((name, i) => [name, row[i]])));
}

function facts(pairs) {
  const list = el("dl", "facts");
  for (const [name, value] of pairs) {
    if (value === "" || value === null || value === undefined) continue;
    list.append(el("dt", "", name), el("dd", "", ...(Array.isArray(value) ? value : [value])));
  }
  return list;
}

function section(id, title, note, ...content) {
  const made = el("section", "", el("header", "", el("h2", "", title), note ? el("p", "", note) : null), ...content);
  made.id = id;
  return made;
}

function link(fragment, ...text) {
  const made = el("a", "", ...text);
  made.setAttribute("href", `#${fragment}`);
  return made;
}

/** A name that says which row is meant, in the address of the page. */
function fragment(kind, name) {
  return `${kind}=${encodeURIComponent(name)}`;
}

// --- tables whose rows open ---------------------------------------------------------------------

const tables = []; // every table of the page, in order

/**
 * A table of rows.
 *
 * columns: [{name, title, number, wide, cell(row) -> text or element, by(row) -> what to sort by}]
 * rows, key(row) -> fragment, text(row) -> what the search looks at, detail(row) -> element
 * first: how many rows to show at once; rest: a sentence on rows that are not in the page at all
 */
function rowTable({ label, columns, rows, key, text, detail, first = 25, rest = "" }) {
  const state = { query: [], sort: null, falling: true, all: false, open: new Set(), only: null };
  const body = el("tbody");
  const head = el("tr");
  const more = el("button", "more");
  const found = rows.map((row) => ({ row, key: key ? key(row) : "", text: text(row).toLowerCase() }));

  for (const column of columns) {
    const cell = el("th", classes(column));
    cell.scope = "col";
    if (column.by) {
      const button = el("button", "", column.name);
      if (column.title) button.title = column.title;
      button.addEventListener("click", () => {
        state.falling = state.sort === column ? !state.falling : true;
        state.sort = column;
        draw();
      });
      cell.append(button);
    } else cell.append(column.name);
    column.head = cell;
    head.append(cell);
  }
  more.type = "button";
  more.addEventListener("click", () => { state.all = true; draw(); });

  function classes(column) {
    return [column.number ? "num" : "", column.wide ? "wide" : "", column.style || ""].join(" ").trim();
  }

  function matching() {
    let list = found.filter((one) => state.query.every((word) => one.text.includes(word)));
    if (state.only) list = list.filter((one) => state.only(one.row));
    if (state.sort) {
      const by = state.sort.by, way = state.falling ? -1 : 1;
      list = [...list].sort((a, b) => {
        const x = by(a.row), y = by(b.row);
        return way * (x < y ? -1 : x > y ? 1 : 0);
      });
    }
    return list;
  }

  function draw() {
    const list = matching();
    const shown = state.all ? list : list.slice(0, first);
    const kept = new Set(shown.map((one) => one.key));
    // A row that a link or the reader opened stays in sight, wherever it stands.
    const extra = list.filter((one) => state.open.has(one.key) && !kept.has(one.key));
    body.replaceChildren(...[...shown, ...extra].flatMap(drawn));
    if (!list.length) {
      const none = el("td", "", rows.length ? "Nothing here matches." : "None.");
      none.colSpan = columns.length;
      body.append(el("tr", "none", none));
    }
    for (const column of columns) {
      if (state.sort === column) column.head.setAttribute("aria-sort", state.falling ? "descending" : "ascending");
      else column.head.removeAttribute("aria-sort");
    }
    more.hidden = list.length <= shown.length;
    more.textContent = `Show all ${number(list.length)}`;
    steady();
  }

  function drawn(one) {
    const row = el("tr", detail ? "row" : "");
    for (const column of columns) {
      const content = column.cell(one.row);
      const cell = el("td", classes(column), content);
      if (typeof content === "string" && content.length > 20) cell.title = content;
      row.append(cell);
    }
    if (!detail) return [row];
    row.tabIndex = -1;
    row.dataset.key = one.key;
    row.setAttribute("aria-expanded", String(state.open.has(one.key)));
    row.addEventListener("click", (event) => {
      if (!event.target.closest("a, button") && !String(getSelection())) toggle(one.key);
    });
    if (!state.open.has(one.key)) return [row];
    const cell = el("td", "", detail(one.row));
    cell.colSpan = columns.length;
    return [row, el("tr", "detail", cell)];
  }

  function toggle(which, open = !state.open.has(which)) {
    if (open) state.open.add(which);
    else state.open.delete(which);
    const focused = document.activeElement?.dataset?.key;
    draw();
    if (focused) rowOf(focused)?.focus({ preventScroll: true });
    if (detail) remember(open ? which : "");
  }

  function rowOf(which) {
    return [...body.children].find((row) => row.dataset.key === which);
  }

  const table = el("table", "rows", el("thead", "", head), body);
  table.setAttribute("aria-label", label);
  const element = el("div", "", el("div", "scroll", table), more, rest ? el("p", "rest", rest) : null);
  const self = {
    element, rowOf, toggle,
    has: (which) => found.some((one) => one.key === which),
    search: (words) => { state.query = words; draw(); return matching().length; },
    show: (which) => { state.only = which; draw(); return matching().length; },
    closed: () => { const any = state.open.size > 0; state.open.clear(); draw(); return any; },
  };
  tables.push(self);
  draw();
  return self;
}

/** One row of the page can be reached with Tab; arrows lead to the others. */
function steady() {
  const rows = [...document.querySelectorAll("tr.row")];
  if (rows.length && !rows.some((row) => row.tabIndex === 0)) rows[0].tabIndex = 0;
}

function step(by) {
  const rows = [...document.querySelectorAll("tr.row")].filter((row) => row.offsetParent);
  if (!rows.length) return;
  const here = rows.indexOf(document.activeElement);
  const next = rows[here < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, here + by))];
  for (const row of rows) row.tabIndex = row === next ? 0 : -1;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

// --- addresses ----------------------------------------------------------------------------------

function remember(which) {
  const address = which ? `#${which}` : location.pathname + location.search;
  try { history.replaceState(null, "", address); } catch { if (which) location.hash = which; }
}

/** Show the row that the address names. */
function follow() {
  const which = location.hash.slice(1);
  const table = which && tables.find((one) => one.has(which));
  if (!table) return;
  search("");
  table.show(null);
  table.toggle(which, true);
  const row = table.rowOf(which);
  row?.scrollIntoView({ block: "center" });
  row?.focus({ preventScroll: true });
}

// --- search, theme, help, keys ------------------------------------------------------------------

const searchBox = el("input");
searchBox.type = "search";
searchBox.placeholder = "Search lines, calls, reasons";
searchBox.setAttribute("aria-label", "Search");
searchBox.autocomplete = "off";
searchBox.spellcheck = false;
const foundText = el("span", "found");
foundText.setAttribute("aria-live", "polite");
const escapes = []; // () -> whether there was something to undo, for what is no table
const searchers = []; // (words) -> how many match, for what is no table

function search(query) {
  if (searchBox.value !== query) searchBox.value = query;
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  let total = 0;
  for (const table of tables) total += table.search(words);
  for (const searcher of searchers) total += searcher(words);
  foundText.textContent = words.length ? `${number(total)} found` : "";
}

const THEMES = ["auto", "light", "dark"];
const themeButton = el("button", "tool word");

function theme(wanted) {
  if (wanted === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = wanted;
  themeButton.textContent = `Theme: ${wanted}`;
  themeButton.dataset.short = { auto: "\u25d0", light: "\u25cb", dark: "\u25cf" }[wanted];
  themeButton.dataset.now = wanted;
  try { localStorage.setItem("truecopy-theme", wanted); } catch { /* a page from a file may keep nothing */ }
}

function nextTheme() {
  theme(THEMES[(THEMES.indexOf(themeButton.dataset.now) + 1) % THEMES.length]);
}

const help = el("dialog");

function openHelp() {
  if (!help.open) help.showModal();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.key === "Escape") {
    if (searchBox.value) search("");
    else if (tables.map((table) => table.closed()).some(Boolean)) remember("");
    else if (!escapes.some((undo) => undo())) document.activeElement?.blur();
    if (document.activeElement === searchBox) searchBox.blur();
    return;
  }
  if (event.target === searchBox) {
    if (event.key === "Enter" || event.key === "ArrowDown") { event.preventDefault(); searchBox.blur(); step(0); }
    return;
  }
  if (event.target.dataset?.keys === "own" && event.key.startsWith("Arrow")) return;
  const row = event.target.closest?.("tr.row");
  const actions = {
    "/": () => { searchBox.focus(); searchBox.select(); },
    "?": openHelp,
    t: nextTheme,
    ArrowDown: () => step(1), j: () => step(1),
    ArrowUp: () => step(-1), k: () => step(-1),
    Enter: row && event.target === row && (() => tables.find((one) => one.rowOf(row.dataset.key) === row).toggle(row.dataset.key)),
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

/** Put the frame on the page. `keys`: further rows for the help, [key, what it does]. */
function start({ name, what, content, about, keys = [] }) {
  document.title = `${name} \u2013 truecopy ${what}`;
  let wanted = "auto";
  try { wanted = localStorage.getItem("truecopy-theme") || "auto"; } catch { /* as above */ }
  theme(THEMES.includes(wanted) ? wanted : "auto");
  themeButton.addEventListener("click", nextTheme);
  const helpButton = el("button", "tool word", "How to read this");
  helpButton.dataset.short = "?";
  helpButton.addEventListener("click", openHelp);
  searchBox.addEventListener("input", () => search(searchBox.value));

  const table = el("table");
  for (const [key, does] of [
    ["/", "search"], ["\u2191 \u2193", "from row to row"], ["Enter", "open and close a row"],
    ["Esc", "clear the search; close what is open"], ...keys, ["t", "light, dark, or as the system has it"], ["?", "this"],
  ]) table.append(el("tr", "", el("td", "", el("kbd", "", key)), el("td", "", does)));
  const close = el("button", "tool", "Close");
  close.addEventListener("click", () => help.close());
  help.append(el("h2", "", "How to read this"), ...about, el("h3", "", "Keys"), table, close);

  const bar = el("div", "bar", el("div", "",
    el("div", "brand", "truecopy", el("span", "", what)),
    el("div", "search", searchBox, el("kbd", "", "/")), foundText, themeButton, helpButton));
  document.body.append(bar, el("main", "", ...content), help);
  steady();
  document.addEventListener("keydown", onKey);
  addEventListener("hashchange", follow);
  follow();
}
