// Every operation of torch, and what it does with memory: one row each.

const operations = objects(data.operations);

function seen(one) {
  const head = el("tr", "", ...["form", "first input", "result", "and", "calls"].map((name) => el("th", "", name)));
  const rows = one.seen.map(([form, layout, origins, also, times]) =>
    el("tr", "", el("td", "form", form), el("td", "", layout), el("td", "", origins || "no tensor"),
      el("td", "", also), el("td", "", number(times))));
  return el("table", "seen", el("thead", "", head), el("tbody", "", ...rows));
}

const table = rowTable({
  label: "Operations",
  columns: [
    { name: "operation", style: "operation", cell: (one) => one.name, by: (one) => one.name },
    { name: "result", style: "words", cell: (one) => one.sentence, by: (one) => one.sentence },
    { name: "trap", style: "words", wide: true, cell: (one) => one.trap },
  ],
  rows: operations,
  key: (one) => fragment("operation", one.name),
  text: (one) => [one.name, one.spellings.join(" "), one.sentence, one.trap, one.instead].join(" "),
  detail: (one) => el("div", "", facts([
    ["written", one.spellings.join(", ")], ["cost", one.cost], ["autograd", one.autograd],
    ["trap", one.trap], ["instead", one.instead],
  ]), seen(one)),
  first: 50,
});

searchBox.placeholder = "Search names, results, traps";

start({
  name: "operations",
  what: "operations",
  content: [
    el("h1", "", `What ${count(operations.length, "operation")} of torch do with memory`),
    el("p", "soft", `Seen by running samples with torch ${data.seen_with}: each on input that lies in memory ` +
      "contiguously, transposed, with gaps, and expanded."),
    section("operations", "Operations", "Which inputs give the same tensor, a view, or new memory.", table.element),
  ],
  about: [
    el("p", "", "Same: the result is the argument itself. View: another tensor on the argument's memory. " +
      "New: memory of its own. Adopted: memory that another library owns."),
    el("p", "", "Copies inside a kernel that torch does not show as an operation are not seen."),
  ],
});
