// What each way of copying costs: one table for each cell, and the ratio to its reference drawn.

const cells = data.cells.map((cell, place) => ({ ...cell, place, rows: objects(cell.methods) }));

const WIDTH = 200, HEIGHT = 12;

/** The interval of a ratio on a logarithmic line: 1 in the middle, the noise floor as a band around it. */
function drawn(cell, row) {
  if (!row.drawn.length || cell.band === null) return "";
  const middle = WIDTH / 2;
  const x = (ratio) => middle + (middle - 4) * ratio / cell.reach;
  const noise = x(cell.band) - middle, [low, ratio, high] = row.drawn.map(x);
  return svg("svg", { class: "ratio", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "noise", x: middle - noise, y: 0, width: 2 * noise, height: HEIGHT }),
    svg("path", { class: "one", d: `M${middle} 0V${HEIGHT}` }),
    svg("path", { class: "interval", d: `M${low} ${HEIGHT / 2}H${Math.max(high, low + 1)}` }),
    svg("path", { class: "middle", d: `M${ratio} 2V${HEIGHT - 2}` }));
}

/** The farthest from 1 that a cell's drawings reach. */
function reach(cell) {
  const ends = cell.rows.flatMap((row) => row.drawn).concat(cell.band ?? 0).map(Math.abs);
  return Math.max(...ends) || 1;
}

function methods(cell) {
  cell.reach = reach(cell);
  return rowTable({
    label: cell.title,
    columns: [
      { name: "method", style: "method", cell: (row) => row.method, by: (row) => row.method },
      { name: "verdict", style: "verdict", cell: (row) => el("span", row.tone, row.verdict), by: (row) => row.verdict },
      { name: "ratio (95 % interval)", wide: true, title: "Time over that of the reference: above 1 is slower",
        cell: (row) => row.ratio, by: (row) => row.drawn[1] ?? 0 },
      { name: "", style: "drawing", wide: true, cell: (row) => drawn(cell, row) },
      { name: "time", number: true, cell: (row) => (row.struck && row.seconds ? el("s", "", row.time) : row.time), by: (row) => row.seconds ?? 0 },
      { name: "GB/s", number: true, wide: true, title: "Payload bytes, each counted once, by time", cell: (row) => row.rate },
      { name: "of ceiling", number: true, wide: true, title: "The time of as large a copy between two blocks that were touched, over the method's", cell: (row) => row.of_ceiling },
      { name: "faults", number: true, wide: true, title: "Minor page faults of one call: memory that is new to the process", cell: (row) => row.faults },
      { name: "kernel", number: true, wide: true, title: "The part of the time that the system took", cell: (row) => row.kernel },
    ],
    rows: cell.rows,
    key: (row) => fragment("method", `${cell.place}:${row.method}`),
    text: (row) => [row.method, row.verdict, cell.title, ...row.facts.flat()].join(" "),
    detail: (row) => (row.facts.length ? facts(row.facts) : el("p", "soft", "No copy: nothing was promised, and nothing checked.")),
    first: 40,
  });
}

function list(lines) {
  return el("ul", "", ...lines.map((line) => el("li", "", line)));
}

function told(cell) {
  const floor = cell.floor === null ? "" : `, noise floor ${cell.floor}`;
  return `${count(cell.payload, "payload byte")}, ${count(cell.rounds, "round")} (${cell.ended})${floor}, ceiling ${cell.ceiling}`;
}

const overview = cells.length < 2 ? null : section("cells", "Cells",
  "One input, one regime of memory, one number of threads and one mode each.",
  rowTable({
    label: "Cells",
    columns: [
      { name: "cell", style: "words", cell: (cell) => link(`cell-${cell.place}`, cell.title), by: (cell) => cell.place },
      { name: "least median of a copy", style: "method", cell: (cell) => cell.fastest, by: (cell) => cell.fastest },
      { name: "time", number: true, cell: (cell) => cell.least },
      { name: "noise floor", number: true, wide: true, cell: (cell) => cell.floor ?? "-" },
    ],
    rows: cells,
    text: (cell) => `${cell.title} ${cell.fastest}`,
    first: 12,
  }).element);

searchBox.placeholder = "Search methods, cells, promises";

start({
  name: "bench",
  what: "bench",
  content: [
    el("h1", "", "What each way of copying costs"),
    el("p", "soft", data.sentence),
    overview,
    ...cells.map((cell) => section(`cell-${cell.place}`, cell.title, told(cell), methods(cell).element,
      cell.notes.length ? list(cell.notes) : null)),
    data.cut.length ? section("cut", "Not measured", "", list(data.cut)) : null,
    data.left_out.length ? section("left-out", "Without a meaning, and left out", "", list(data.left_out)) : null,
  ].filter(Boolean),
  about: [
    el("p", "", "A ratio is the time of a method over that of the reference, in the same rounds: above 1 is slower. " +
      "The line is its interval, the mark on it the ratio, the band what the reference differs from itself."),
    el("p", "", "Faster and slower are said only of an interval that clears both 1 and the band; same, where it lies within 2 %. " +
      "All else is cannot tell, with the reason below the table."),
    el("p", "", "A time that is struck out is that of a method which makes no copy, or breaks another promise: open its row."),
    el("p", "", "Payload bytes are counted once. Faults tell fresh memory from recycled memory."),
  ],
});
