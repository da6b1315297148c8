// A trace within the frame of page.js.

const sites = data.sites.map(([place, file, line, endLine, column, endColumn, func, text]) => (
  { place, file, line, endLine, column, endColumn, func, text }));
const unknownSite = { place: "from outside", file: "", line: 0, column: -1, func: "", text: "" };
const siteOf = (index) => sites[index] ?? unknownSite;
const wordOf = (index) => data.words[index];

const lines = objects(data.lines), copies = objects(data.copies), churn = objects(data.churn);
const habits = objects(data.habits), survivors = objects(data.survivors);
const iterations = objects(data.iterations), storages = objects(data.storages);
const owners = objects(data.peak.owners), unseen = objects(data.unseen);
const events = objects(data.events).map((event) => ({
  ...event, call: wordOf(event.call), module: wordOf(event.module), phase: wordOf(event.phase),
  origins: wordOf(event.origins), effects: wordOf(event.effects), raised: wordOf(event.raised),
}));
const totals = data.totals, peak = data.peak;

const CLASSES = ["parameter", "buffer", "gradient", "optimizer state", "saved for backward",
  "activation", "input", "temporary", "other", "known to no owner"];
const CLASS_NOTES = {
  "parameter": "weights that are trained", "buffer": "a module's other tensors", "gradient": "in .grad",
  "optimizer state": "moments and the like", "saved for backward": "kept by autograd until backward is done",
  "activation": "results of the forward pass", "input": "there before, and not a module's",
  "temporary": "freed before the call that made it had ended", "other": "none of these",
  "known to no owner": "counted by the allocator, met by nobody",
};

function paint(element, owner) {
  element.style.background = `var(--c${CLASSES.includes(owner) ? CLASSES.indexOf(owner) : 8})`;
  return element;
}

function swatch(owner) {
  return paint(el("i", "swatch"), owner);
}

function words(site, ...more) {
  const { place, file, func, text } = siteOf(site);
  return [place, file, func, text, ...more].join("\n");
}

// Several lines of the record may be one line of the file (two statements, two columns): the first is linked.
const linkOfSite = new Map();
for (const line of lines) if (!linkOfSite.has(line.site)) linkOfSite.set(line.site, fragment("line", line.link));
const linkOfPlace = new Map();
for (const line of lines) if (!linkOfPlace.has(siteOf(line.site).place)) linkOfPlace.set(siteOf(line.site).place, fragment("line", line.link));

/** The place of a site, as a link to its line where the page has it. */
function placeLink(index) {
  const site = siteOf(index);
  const target = linkOfSite.get(index) ?? linkOfPlace.get(site.place);
  const made = target ? link(target, site.place) : el("span", "", site.place);
  made.classList.add("place");
  made.title = site.file;
  return made;
}

function amount(bytes, most = 0) {
  if (!bytes) return el("span", "zero", "0");
  if (!most) return size(bytes);
  const bar = el("i", "weight");
  bar.style.width = `${100 * bytes / most}%`;
  return el("span", "", size(bytes), bar);
}

const list = (values) => values.filter((value) => value !== "").join(", ");
const counted = (pairs) => pairs.map(([name, n]) => (n === 1 ? name : `${name} \u00d7${number(n)}`)).join(", ");
const nodes = (n) => `${number(n)} autograd ${n === 1 ? "node" : "nodes"}`;
const survived = (one) => (one.what === "bytes" ? size(Math.round(one.per_iteration)) : nodes(one.per_iteration));

// --- the first screen ---------------------------------------------------------------------------

function tile(label, value, note, tone = "") {
  return el("div", `tile ${tone}`, el("div", "label", label), el("div", "value", value), el("div", "note", ...[note].flat()));
}

function survivalTile() {
  if (!survivors.length) {
    if (iterations.length < 2) return null;
    return tile("Left by each iteration", "nothing", `${number(iterations.length)} iterations`, "good");
  }
  const each = (what) => survivors.filter((one) => one.what === what).reduce((sum, one) => sum + one.per_iteration, 0);
  const bytes = each("bytes"), made = each("nodes");
  const told = [bytes ? size(Math.round(bytes)) : "", made ? nodes(made) : ""].filter(Boolean);
  return tile("Left by each iteration", told[0], told[1] ? `and ${told[1]}` : `from ${count(survivors.length, "line")}`, "warn");
}

function firstScreen() {
  const said = `${count(totals.events, "call")} and ${count(totals.operations, "operation")} in ${number(totals.seconds)} s, ${data.tier}.`;
  const ended = data.ended === "completed" ? "" : ` The run ${data.ended}.`;
  const peakNote = !peak.nbytes ? "no memory seen" : peak.site < 0 ? "before it began" : ["at ", placeLink(peak.site)];
  return el("div", "",
    el("h1", "", ...data.sentence.split(" \u00b7 ").flatMap((part, i) => (i ? [el("span", "dot", " \u00b7 "), part] : [part]))), el("p", "whole", said + ended),
    el("div", "tiles",
      tile("Peak", size(peak.nbytes), peakNote),
      tile("Copied without being asked", totals.hidden_copies ? size(totals.hidden_bytes) : "nothing",
        totals.hidden_copies ? `in ${count(totals.hidden_copies, "hidden copy", "hidden copies")}` : "no hidden copies", totals.hidden_copies ? "warn" : "good"),
      survivalTile(),
      tile("Allocated", size(totals.allocated_bytes), `${size(totals.end_bytes)} alive at the end`),
      tile("Copied in all", size(totals.copied_bytes), totals.read_bytes === totals.copied_bytes ? "asked for or not" : `from ${size(totals.read_bytes)}`),
      totals.would_be_bytes ? tile("Meta and fake tensors", size(totals.would_be_bytes), "would be allocated; no memory") : null));
}

// --- memory over events -------------------------------------------------------------------------

const HEIGHT = 260, TOP = 26, BOTTOM = 22, LEFT = 70, RIGHT = 12;
let choose = () => 0; // set by the table of storages: shows those alive at a moment, and counts them

function chart() {
  const columns = data.memory.columns.length, classes = data.memory.owners;
  const moments = data.memory.rows.map((row) => ({
    first: row[0], last: row[1], low: row[2], high: row[3], copied: row[4], by: row.slice(columns),
  }));
  if (!moments.length) return null;
  const begin = moments[0].first, end = moments.at(-1).last + 1;
  const top = Math.max(1, ...moments.map((moment) => moment.high), peak.nbytes);
  const box = el("div", "chart");
  const legend = el("div", "legend");
  const peakAt = moments.findIndex((m) => m.first <= peak.event && peak.event <= m.last);
  let here = -1, pinned = -1, alive = 0;

  box.tabIndex = 0;
  box.dataset.keys = "own";
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", `Memory over ${count(totals.events, "event")}: peak ${size(peak.nbytes)}. Arrow keys move, Enter shows what is alive there.`);

  function draw() {
    const width = Math.max(280, box.clientWidth - 16), height = box.clientWidth < 620 ? 200 : HEIGHT;
    const x = (event) => LEFT + (width - LEFT - RIGHT) * (event - begin) / (end - begin);
    const y = (bytes) => height - BOTTOM - (height - TOP - BOTTOM) * bytes / top;
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const starts = data.memory.iterations;
    if (starts.length > 1 && starts.length <= 60) {
      const last = iterations.length ? iterations.at(-1).last_event + 1 : end;
      starts.forEach((start, i) => {
        const stop = starts[i + 1] ?? Math.max(start, last);
        if (i % 2 === 0) drawing.append(svg("rect", { class: "band", x: x(start), y: TOP, width: Math.max(0, x(stop) - x(start)), height: height - TOP - BOTTOM }));
      });
    }
    for (const tick of byteTicks(top)) {
      drawing.append(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }),
        svg("text", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, tickText(tick)));
    }
    const floor = moments.map(() => 0);
    classes.forEach((owner, c) => {
      const upper = moments.map((moment, i) => floor[i] + moment.by[c]);
      drawing.append(svg("path", { d: area(floor, upper), fill: `var(--c${CLASSES.indexOf(owner)})` }));
      upper.forEach((value, i) => { floor[i] = value; });
    });
    function area(low, high) {
      let path = "";
      for (let i = 0; i < moments.length; i++) path += `${i ? "L" : "M"}${at(moments[i].first)},${ay(high[i])}H${at(moments[i].last + 1)}`;
      for (let i = moments.length - 1; i >= 0; i--) path += `L${at(moments[i].last + 1)},${ay(low[i])}H${at(moments[i].first)}`;
      return `${path}Z`;
    }
    function at(event) { return x(event).toFixed(1); }
    function ay(bytes) { return y(bytes).toFixed(1); }
    for (const start of starts) drawing.append(svg("line", { class: "tick", x1: x(start), x2: x(start), y1: height - BOTTOM, y2: height - BOTTOM + 4 }));
    for (const tick of eventTicks(begin, end, width)) drawing.append(svg("text", { x: x(tick), y: height - 4, "text-anchor": "middle" }, number(tick)));
    if (peakAt >= 0) {
      const px = x(peak.event + 0.5), right = px > width * 0.6;
      drawing.append(svg("line", { class: "peak", x1: px, x2: px, y1: 10, y2: height - BOTTOM }),
        svg("text", { class: "peak-text", x: px + (right ? -6 : 6), y: 15, "text-anchor": right ? "end" : "start" },
          `peak ${size(peak.nbytes)}${peak.site >= 0 && width > 420 ? ` at ${siteOf(peak.site).place}` : ""}`));
    }
    const over = svg("rect", { class: "here", y: TOP - 4, height: height - TOP - BOTTOM + 4, width: 0 });
    const pin = svg("line", { class: "pinned", y1: TOP - 4, y2: height - BOTTOM });
    drawing.append(over, pin);
    box.replaceChildren(drawing, legend);

    function mark() {
      const moment = moments[here];
      over.setAttribute("x", moment ? x(moment.first) : 0);
      over.setAttribute("width", moment ? Math.max(1.5, x(moment.last + 1) - x(moment.first)) : 0);
      const chosen = moments[pinned];
      const px = chosen ? x((chosen.first + chosen.last + 1) / 2) : -9;
      pin.setAttribute("x1", px);
      pin.setAttribute("x2", px);
      tell(moment ?? chosen ?? moments[peakAt] ?? moments.at(-1), !moment && !chosen && peakAt >= 0);
    }
    drawing.addEventListener("pointermove", (event) => {
      const left = drawing.getBoundingClientRect();
      const event_ = begin + (event.clientX - left.left - LEFT) / (width - LEFT - RIGHT) * (end - begin);
      here = moments.findIndex((m) => m.first <= event_ && event_ < m.last + 1);
      mark();
    });
    drawing.addEventListener("pointerleave", () => { here = -1; mark(); });
    drawing.addEventListener("click", () => { if (here >= 0) pick(here); });
    box.mark = mark;
    mark();
  }

  function pick(which) {
    pinned = pinned === which ? -1 : which;
    alive = choose(moments[pinned] ?? null);
    box.mark();
  }
  box.unpin = () => { pinned = -1; box.mark(); };

  function tell(moment, isPeak) {
    const between = moment.first === moment.last ? `event ${number(moment.first)}` : `events ${number(moment.first)} to ${number(moment.last)}`;
    const when = el("div", "when", el("b", "", `${size(moment.high)} `), isPeak ? `at the peak, ${between}` : `at most in ${between}`,
      el("span", "soft", ` \u00b7 ${size(moment.copied)} copied so far`));
    if (moment === moments[pinned] && storages.length) when.append(" \u00b7 ", link("storages", `${count(alive, "storage")} alive then`));
    const parts = classes.map((owner, c) => {
      const part = el("span", "class", swatch(owner), owner, el("b", "", size(moment.by[c])));
      part.title = CLASS_NOTES[owner] ?? "";
      return part;
    });
    legend.replaceChildren(when, ...parts.reverse());
  }

  box.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) {
      event.preventDefault();
      here = Math.max(0, Math.min(moments.length - 1, (here < 0 ? (pinned < 0 ? peakAt : pinned) : here) + by));
      box.mark();
    } else if (event.key === "Enter") {
      pick(here < 0 ? Math.max(0, peakAt) : here);
    }
  });
  box.addEventListener("blur", () => { here = -1; box.mark?.(); });
  let width = 0;
  new ResizeObserver(() => { if (box.clientWidth !== width) { width = box.clientWidth; draw(); } }).observe(box);
  return box;
}

function byteTicks(top) {
  let each = 1;
  while (top / each > 6) each *= 2;
  return Array.from({ length: Math.floor(top / each) + 1 }, (_, i) => i * each);
}

/** Exact where a size of one decimal would round: 1.25 GiB. */
function tickText(bytes) {
  const power = bytes < 1024 ? 0 : Math.min(5, Math.floor(Math.log2(bytes) / 10));
  return bytes ? `${number(Number((bytes / 1024 ** power).toFixed(2)))} ${["B", ...UNITS][power]}` : "0";
}

function eventTicks(begin, end, width) {
  const rough = (end - begin) / Math.max(2, width / 130);
  const power = 10 ** Math.floor(Math.log10(Math.max(1, rough)));
  const each = Math.max(1, [1, 2, 5, 10].find((step) => step * power >= rough) * power);
  const ticks = [];
  for (let tick = Math.ceil(begin / each) * each; tick < end; tick += each) ticks.push(tick);
  return ticks;
}

// --- hidden copies ------------------------------------------------------------------------------

function why(copy) {
  let said = copy.call || copy.operation;
  if (copy.inside && copy.inside !== said) said += `, inside ${copy.inside},`;
  else if (copy.phase !== "forward") said += `, in ${copy.phase},`;
  const reason = copy.reason ? `${said} copied: ${copy.reason}` : `${said} copied`;
  return copy.amplification >= 2 ? `${reason}, ${number(copy.amplification)} bytes written for each byte in memory` : reason;
}

function reasons(copy) {
  const made = copy.forward >= 0 && copy.forward !== copy.site ? el("p", "soft", "made by ", placeLink(copy.forward), " ", el("code", "", siteOf(copy.forward).text)) : null;
  return [
    el("p", "why", el("b", "", "Why "), why(copy)), made,
    copy.advice ? el("p", "advice", el("b", "", "Instead "), copy.advice) : null,
  ];
}

const cost = (copy) => `${size(copy.nbytes)} in ${count(copy.count, "copy", "copies")}`;

function copyCards() {
  if (!copies.length) return el("p", "none", "None: every byte that was copied was asked for.");
  const shown = el("div", "cards"), more = el("button", "more");
  let all = false, query = [];
  const cards = copies.map((copy) => ({
    text: words(copy.site, copy.call, copy.operation, copy.module, copy.reason, copy.advice, copy.inside).toLowerCase(),
    make: () => el("article", "card",
      el("div", "top", el("span", "cost", cost(copy)), placeLink(copy.site), el("span", "soft", list([copy.module, siteOf(copy.site).func]))),
      el("pre", "code", siteOf(copy.site).text), ...reasons(copy)),
  }));
  function draw() {
    const matching = cards.filter((card) => query.every((word) => card.text.includes(word)));
    shown.replaceChildren(...matching.slice(0, all ? undefined : 6).map((card) => card.made ??= card.make()));
    if (!matching.length) shown.append(el("p", "none", "Nothing here matches."));
    more.hidden = all || matching.length <= 6;
    more.textContent = `Show all ${number(matching.length)}`;
    return matching.length;
  }
  more.addEventListener("click", () => { all = true; draw(); });
  searchers.push((wanted) => { query = wanted; return draw(); });
  draw();
  const { rest } = data.copies;
  return el("div", "", shown, more, rest.count ? el("p", "rest", `${count(rest.count, "more kind")} of hidden copies, ${size(rest.nbytes)} together, are in the record and not in this page.`) : null);
}

// --- lines --------------------------------------------------------------------------------------

function lineDetail(line) {
  const site = siteOf(line.site), same = (one) => one.site >= 0 && siteOf(one.site).place === site.place;
  const columns = site.column >= 0 ? `, columns ${site.column + 1} to ${site.endColumn}` : "";
  const born = storages.filter(same);
  const here = copies.filter(same);
  return el("div", "",
    el("pre", "code", site.text || "The source could not be read."),
    facts([
      ["Where", `${site.file}, line ${site.line}${columns}${site.func ? `, in ${site.func}` : ""}`],
      ["Modules", list(line.modules)], ["Phases", list(line.phases)], ["Calls", counted(line.calls)],
      ["Results", counted(line.origins)], ["Arguments", counted(line.effects)],
      ["Operations", `${number(line.operations)} in ${count(line.events, "call")}`],
      ["Copied", line.copied_bytes ? `${size(line.copied_bytes)}, from ${size(line.read_bytes)}` : ""],
      ["Alive at the peak", line.peak_bytes ? size(line.peak_bytes) : ""],
      ["Raised", line.raised ? count(line.raised, "call") : ""],
    ]),
    ...here.flatMap((copy) => [el("h3", "", `Hidden: ${cost(copy)}`), ...reasons(copy)]),
    ...survivors.filter(same).flatMap((one) => [el("h3", "", `Left behind by each iteration: ${survived(one)}`), el("p", "", one.holders.length ? `Held by ${one.holders.join(", ")}` : "Who holds it was not found.")]),
    ...churn.filter(same).flatMap((one) => [el("h3", "", `Allocated again and again: ${number(one.count)} times ${size(one.nbytes)}`), el("p", "", churnAdvice(one))]),
    ...habits.filter(same).flatMap((one) => [el("h3", "", `A better way: ${one.instead}`), el("p", "", `${one.what} ${one.why}`)]),
    born.length ? el("h3", "", "Memory that it allocated") : null,
    ...born.slice(0, 8).map((storage) => el("p", "", link(fragment("storage", storage.number), `storage ${storage.number}`), ` ${size(storage.nbytes)}, ${storage.owner}`)),
    born.length > 8 ? el("p", "soft", `and ${number(born.length - 8)} more`) : null,
    el("p", "soft", link(fragment("line", line.link), "Link to this line")));
}

const source = {
  name: "source", style: "source", cell: (row) => siteOf(row.site).text,
};
const linked = { name: "at", style: "place", cell: (row) => placeLink(row.site), by: (row) => siteOf(row.site).place };
const where = (title = "at") => ({ name: title, style: "place", cell: (row) => siteOf(row.site).place, by: (row) => siteOf(row.site).place });

function lineTable() {
  const most = Math.max(...lines.map((line) => line.hidden_bytes), 0);
  const { rest } = data.lines;
  return rowTable({
    label: "Lines", rows: lines, key: (line) => fragment("line", line.link),
    text: (line) => words(line.site, ...line.modules, ...line.phases, ...line.calls.map(([name]) => name)),
    detail: lineDetail,
    columns: [
      where(), source,
      { name: "hidden", title: "Written by copies that nobody asked for", number: true, cell: (line) => amount(line.hidden_bytes, most), by: (line) => line.hidden_bytes },
      { name: "copied", title: "Written by copying, asked for or not", number: true, wide: true, cell: (line) => amount(line.copied_bytes), by: (line) => line.copied_bytes },
      { name: "allocated", number: true, wide: true, cell: (line) => amount(line.allocated_bytes), by: (line) => line.allocated_bytes },
      { name: "at peak", title: "Allocated here, alive at the peak of the run", number: true, wide: true, cell: (line) => amount(line.peak_bytes), by: (line) => line.peak_bytes },
      { name: "calls", number: true, wide: true, cell: (line) => number(line.events), by: (line) => line.events },
    ],
    rest: rest.count ? `${count(rest.count, "more line")}, with ${size(rest.hidden_bytes)} hidden and ${size(rest.allocated_bytes)} allocated, are in the record and not in this page.` : "",
  }).element;
}

// --- owners at the peak -------------------------------------------------------------------------

function ownerTable() {
  const byClass = new Map();
  for (const owner of owners) byClass.set(owner.owner, (byClass.get(owner.owner) ?? 0) + owner.nbytes);
  const split = el("div", "split");
  for (const name of CLASSES.filter((one) => byClass.has(one))) {
    const part = paint(el("i"), name);
    part.style.flexGrow = byClass.get(name);
    part.title = `${name} ${size(byClass.get(name))}`;
    split.append(part);
  }
  const { rest } = data.peak.owners;
  const left = [
    rest.count ? `${count(rest.count, "more owner")} with ${size(rest.nbytes)} are in the record and not in this page.` : "",
    peak.unattributed_bytes ? `${size(peak.unattributed_bytes)} of the allocator's total belong to nobody that was met.` : "",
  ].join(" ").trim();
  const most = Math.max(...owners.map((owner) => owner.nbytes), 0);
  const table = rowTable({
    label: "Owners at the peak", rows: owners, first: 12, rest: left,
    text: (owner) => words(owner.site, owner.owner, owner.module, owner.saved_by),
    columns: [
      { name: "class", cell: (owner) => el("span", "", swatch(owner.owner), owner.owner), by: (owner) => owner.owner },
      linked,
      source,
      { name: "module", style: "words", wide: true, cell: (owner) => owner.module, by: (owner) => owner.module },
      { name: "kept by", style: "words", wide: true, cell: (owner) => owner.saved_by, by: (owner) => owner.saved_by },
      { name: "bytes", number: true, cell: (owner) => sizeOfOwner(owner, most), by: (owner) => owner.nbytes },
    ],
  });
  return el("div", "", split, table.element);
}

function sizeOfOwner(owner, most) {
  const made = amount(owner.nbytes, most);
  if (made.lastChild.style) paint(made.lastChild, owner.owner);
  return made;
}

// --- what an iteration leaves, churn, habits ----------------------------------------------------

function survivorTable() {
  return rowTable({
    label: "Left behind by each iteration", rows: survivors, first: 12,
    text: (one) => words(one.site, one.module, one.what, ...one.holders),
    columns: [
      linked, source,
      { name: "held by", style: "words", cell: (one) => one.holders.join(", ") || "not found" },
      { name: "each iteration", number: true, cell: survived, by: (one) => one.per_iteration },
      { name: "in all", number: true, wide: true, cell: (one) => (one.what === "bytes" ? size(one.amount) : nodes(one.amount)), by: (one) => one.amount },
    ],
  }).element;
}

function churnAdvice(one) {
  const why = one.why_not ? `not in place: ${one.why_not}` : "";
  if (one.instead) return `${one.instead} saves ${size(one.saves_bytes)}${why ? ` (${why})` : ""}`;
  return why || "no other way is known";
}

function churnTable() {
  return rowTable({
    label: "Allocated again and again", rows: churn, first: 12,
    text: (one) => words(one.site, one.module, one.call, one.instead, one.why_not),
    columns: [
      linked, source,
      { name: "could be", style: "words", cell: churnAdvice },
      { name: "times", number: true, cell: (one) => number(one.count), by: (one) => one.count },
      { name: "each", number: true, cell: (one) => size(one.nbytes), by: (one) => one.nbytes },
    ],
  }).element;
}

function habitTable() {
  return rowTable({
    label: "Better ways to copy", rows: habits, first: 12,
    text: (one) => words(one.site, one.module, one.what, one.why, one.instead),
    columns: [
      linked, source,
      { name: "why", style: "words", cell: (one) => `${one.what}: ${one.why}` },
      { name: "instead", style: "words", cell: (one) => el("code", "", one.instead) },
      { name: "times", number: true, cell: (one) => number(one.count), by: (one) => one.count },
      { name: "bytes", number: true, cell: (one) => amount(one.nbytes), by: (one) => one.nbytes },
    ],
  }).element;
}

function iterationTable() {
  const { rest } = data.iterations;
  return rowTable({
    label: "Iterations", rows: iterations, first: 10, text: (one) => `iteration ${one.number}`,
    rest: rest.count ? `${count(rest.count, "more iteration")} in the record and not in this page.` : "",
    columns: [
      { name: "number", cell: (one) => number(one.number), by: (one) => one.number },
      { name: "events", wide: true, cell: (one) => `${number(one.first_event)} to ${number(one.last_event)}` },
      ...[["allocated", "allocated_bytes"], ["copied", "copied_bytes"], ["peak", "peak_bytes"], ["at its end", "end_bytes"], ["survived the next", "survived_bytes"]]
        .map(([name, field]) => ({ name, number: true, wide: field === "copied_bytes" || field === "end_bytes", cell: (one) => amount(one[field]), by: (one) => one[field] })),
      { name: "nodes", title: "Autograd nodes made in it, alive at the end of the next", number: true, cell: (one) => number(one.nodes), by: (one) => one.nodes },
    ],
  }).element;
}

// --- storages -----------------------------------------------------------------------------------

const touching = new Map();
for (const event of events) {
  if (!touching.has(event.storage)) touching.set(event.storage, []);
  touching.get(event.storage).push(event);
}

function life(storage) {
  const bar = el("span", "life");
  const span = Math.max(1, totals.events);
  const from = Math.max(0, storage.birth), to = storage.death < 0 ? span : storage.death;
  const part = paint(el("i"), storage.owner);
  part.style.left = `${100 * from / span}%`;
  part.style.width = `${Math.max(0.5, 100 * (to - from) / span)}%`;
  bar.append(part);
  if (peak.event >= 0) {
    const mark = el("i", "at-peak");
    mark.style.left = `${100 * (peak.event + 0.5) / span}%`;
    bar.append(mark);
  }
  bar.title = lived(storage);
  return bar;
}

function lived(storage) {
  const from = storage.birth < 0 ? "there before" : `born at event ${number(storage.birth)}`;
  return `${from}, ${storage.death < 0 ? "alive at the end" : `freed at event ${number(storage.death)}`}`;
}

function storageDetail(storage) {
  const seen = touching.get(storage.number) ?? [];
  const rows = el("table", "touched");
  if (seen.length) rows.append(el("tr", "", ...["event", "call", "result", "at", ""].map((name) => el("th", "", name))));
  let before = null;
  for (const event of seen) {
    if (before && seen.length < storage.events && event === seen[Math.ceil(seen.length / 2)]) {
      const gap = el("td", "soft", `${number(storage.events - seen.length)} more, in the record`);
      gap.colSpan = 5;
      rows.append(el("tr", "", gap));
    }
    before = event;
    const what = list([event.origins, event.effects, event.raised ? `raised ${event.raised}` : "", event.phase === "forward" ? "" : event.phase]);
    rows.append(el("tr", "", el("td", "", number(event.index)), el("td", "", el("code", "", event.call)), el("td", "", what),
      el("td", "", placeLink(event.site)), el("td", "source", siteOf(event.site).text)));
  }
  return el("div", "",
    facts([
      ["Memory", `${size(storage.nbytes)} (${number(storage.nbytes)} bytes) on ${storage.device}`],
      ["Class", `${storage.owner}${storage.saved_by ? `, by ${storage.saved_by}` : ""}`],
      ["Life", lived(storage)],
      ["Allocated at", storage.site < 0 ? "from outside" : [placeLink(storage.site), " ", el("code", "", siteOf(storage.site).text)]],
      ["Module", storage.module],
    ]),
    el("h3", "", `Views and writes: ${count(storage.events, "call")} with a result in this memory`), rows,
    el("p", "soft", link(fragment("storage", storage.number), "Link to this storage")));
}

function storageTable(picture) {
  const { rest } = data.storages;
  const table = rowTable({
    label: "Storages", rows: storages, key: (storage) => fragment("storage", storage.number), first: 15,
    text: (storage) => words(storage.site, `storage ${storage.number}`, storage.owner, storage.module, storage.device, storage.saved_by),
    detail: storageDetail,
    columns: [
      { name: "storage", cell: (storage) => String(storage.number), by: (storage) => storage.number },
      { name: "bytes", number: true, cell: (storage) => size(storage.nbytes), by: (storage) => storage.nbytes },
      { name: "class", cell: (storage) => el("span", "", swatch(storage.owner), storage.owner), by: (storage) => storage.owner },
      where("allocated at"), source,
      { name: "life, from first event to last", wide: true, cell: life, by: (storage) => (storage.death < 0 ? totals.events : storage.death) - storage.birth },
      { name: "calls", title: "Calls with a result in this memory", number: true, wide: true, cell: (storage) => number(storage.events), by: (storage) => storage.events },
    ],
    rest: rest.count ? `${count(rest.count, "more storage")} with ${size(rest.nbytes)} are in the record and not in this page.` : "",
  });
  const chip = el("button", "chip");
  chip.hidden = true;
  const showAll = () => { picture?.unpin(); choose(null); };
  chip.addEventListener("click", showAll);
  escapes.push(() => { const any = !chip.hidden; if (any) showAll(); return any; });
  choose = (moment) => {
    chip.hidden = !moment;
    if (!moment) { table.show(null); return 0; }
    const n = table.show((storage) => storage.birth <= moment.last && (storage.death < 0 || storage.death >= moment.first));
    chip.textContent = `${number(n)} alive at events ${number(moment.first)} to ${number(moment.last)} \u00d7`;
    chip.title = "Show all again";
    return n;
  };
  const made = section("storages", "Storages", "Blocks of memory: open one for its life, and every view and write that was seen.", el("p", "", chip), table.element);
  return made;
}

// --- what was not seen, how to read -------------------------------------------------------------

function unseenList() {
  const tier = data.tier.startsWith("seen from Python")
    ? "This trace was made from Python: copies and scratch memory inside of a kernel are not in its numbers. exact=True sees them."
    : "This trace was made by torch's profiler: calls that reach no operation, as contiguous() of what is contiguous, are not in its numbers.";
  const rows = el("table", "touched");
  for (const one of unseen) rows.append(el("tr", "", el("td", "", number(one.count)), el("td", "", one.what), el("td", "soft", one.why)));
  return el("div", "", el("p", "prose", tier), unseen.length ? rows : el("p", "none", "Nothing else was met that could not be seen."),
    el("p", "soft", `The trace itself held ${size(totals.own_bytes)} when it ended.`));
}

const about = [
  el("p", "", "A hidden copy is memory written by a call that did not say that it copies: reshape, contiguous, to, an expanded tensor written out. The page says why it happened, and the cheapest change that avoids it."),
  el("p", "", "Time runs from left to right in events, not in seconds: an event is one call of the program. The height is the memory of all storages alive then, the most within each stretch."),
  el("p", "", "A storage whose bar reaches the right end was alive when the trace ended. One more of them in each iteration is a leak."),
  el("p", "", "Bytes are those of whole storages; a view allocates none. Colors say to whom memory belongs, not how bad it is."),
];

const picture = chart();
const optional = (rows, ...made) => (rows.length ? section(...made.map((one) => (typeof one === "function" ? one() : one))) : null);
start({
  name: data.name, what: "trace", about,
  keys: [["\u2190 \u2192", "in the chart: through the events; Enter shows the storages alive there"]],
  content: [
    firstScreen(),
    picture && section("memory", "Memory over time", "By event, in the classes of its owners. Click a moment to see which storages are alive.", picture),
    section("copies", "Hidden copies", copies.length ? "Copies that no line asked for, most bytes first." : "", copyCards()),
    lines.length ? section("lines", "Lines", "Worst first. Open one for all that it did.", lineTable()) : null,
    optional(survivors, "survivors", "Left behind by each iteration", "Made in one iteration and still alive at the end of the next: a leak, if it was not meant.", survivorTable),
    owners.length ? section("owners", "Alive at the peak", `${size(peak.nbytes)}${peak.temporary_bytes ? `, ${size(peak.temporary_bytes)} of it temporary` : ""}, by the line that allocated it.`, ownerTable()) : null,
    optional(churn, "churn", "Allocated again and again", "The same bytes each time, and dropped each time.", churnTable),
    optional(habits, "habits", "Better ways to copy", "", habitTable),
    storages.length ? storageTable(picture) : null,
    optional(iterations, "iterations", "Iterations", "", iterationTable),
    section("unseen", "Not seen", "", unseenList()),
    section("reading", "How to read this", "", el("div", "prose", ...about.map((one) => one.cloneNode(true)))),
  ].filter(Boolean),
});
