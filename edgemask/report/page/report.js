// Embedded data blocks, sorting and filtering of tables, and the dialog with the runs and records of a cell.
// Text from records is only inserted as text. No code here builds HTML from strings.

const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

/** Return a new element with attributes (functions become listeners) and children (text or elements; null is skipped). */
function el(name, attributes = {}, ...children) {
  const element = name.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4))
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null));
  return element;
}

// ---- data blocks: deflated, in base64 -------------------------------------------------------------------

async function inflate(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

const blocks = new Map();

/** Return the text of an embedded block. */
const blockText = async (id) => new TextDecoder().decode(await inflate($(`#block-${id}`).textContent));

/** Return the content of an embedded JSON block. It is unpacked only once. */
function block(id) {
  if (!blocks.has(id)) blocks.set(id, blockText(id).then(JSON.parse));
  return blocks.get(id);
}

/** Return the record with index n. */
async function record(n) {
  const { per_block } = await block("index");
  return (await block(`records-${Math.floor(n / per_block)}`))[n % per_block];
}

// ---- numbers --------------------------------------------------------------------------------------------

const minus = (text) => text.replace("-", "−");
const fixed = (value, decimals) => (value === null ? "–" : minus(value.toFixed(decimals)));
const signed = (value, decimals) => (value > 0 ? "+" : "") + fixed(value, decimals);
const digits = (value) => (typeof value === "number" ? minus(String(Number(value.toPrecision(6)))) : String(value));

/** Return text nodes and code elements: text in backticks is code. */
const prose = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));
const bare = (text) => text.replaceAll("`", "");

// ---- sortable tables ------------------------------------------------------------------------------------

const collator = new Intl.Collator("en", { numeric: true });

/**
 * Make the headers of a table sort its rows. The first click sorts numbers from the largest and text from A, the second
 * reverses the order, the third restores the original order. Returns a function that sorts again.
 */
function sortable(table, sortBy = () => 0) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const headers = $$("thead th", table);
  const valueOf = (row, column, numeric) => {
    const cell = row.cells[column];
    if (!numeric) return cell.textContent.trim();
    const values = JSON.parse(cell.dataset.sort);
    return values[Math.min(sortBy(), values.length - 1)];
  };
  const apply = (column, direction) => {
    const numeric = headers[column].dataset.kind === "number";
    const rows = [...original];
    if (direction !== "none") {
      const sign = direction === "ascending" ? 1 : -1;
      const keys = new Map(rows.map((row) => [row, valueOf(row, column, numeric)]));
      rows.sort((a, b) => {
        const [x, y] = [keys.get(a), keys.get(b)];
        if (x === null || y === null) return (x === null) - (y === null); // missing values stay last
        return sign * (numeric ? x - y : collator.compare(x, y));
      });
    }
    body.append(...rows);
    headers.forEach((header, i) => header.setAttribute("aria-sort", i === column ? direction : "none"));
  };
  headers.forEach((header, column) => {
    const button = el("button", { type: "button", class: "sort" }, ...header.childNodes);
    button.addEventListener("click", () => {
      const cycle = header.dataset.kind === "number" ? ["none", "descending", "ascending"] : ["none", "ascending", "descending"];
      apply(column, cycle[(cycle.indexOf(header.getAttribute("aria-sort")) + 1) % 3]);
    });
    header.append(button);
  });
  return () => {
    const column = headers.findIndex((header) => header.getAttribute("aria-sort") !== "none");
    if (column >= 0) apply(column, headers[column].getAttribute("aria-sort"));
  };
}

/** Return a sortable table. Columns are {title, number?}; cells are {show: text or element, sort?}. */
function dataTable(caption, columns, rows) {
  const table = el("table", {},
    el("caption", { class: "vh" }, caption),
    el("thead", {}, el("tr", {}, columns.map((c) =>
      el("th", { scope: "col", "aria-sort": "none", "data-kind": c.number ? "number" : "text" }, c.title)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => {
      const sort = columns[i].number ? JSON.stringify([cell.sort ?? null]) : null;
      return el("td", { "data-sort": sort, class: columns[i].number ? "number" : "text" }, cell.show ?? "–");
    })))));
  sortable(table);
  return table;
}

for (const box of $$(".table")) {
  const table = $("table", box);
  const sortBy = $(".sort-by", box);
  const sortAgain = sortable(table, () => Number(sortBy?.value ?? 0));
  const rows = [...table.tBodies[0].rows];
  const filter = $(".filter", box);
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = `${row.cells[0].textContent} ${$(".rule", row)?.textContent ?? ""}`.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    const visible = rows.filter((row) => !row.hidden).length;
    $(".count", box).textContent = words.length ? `${visible} of ${rows.length} rows` : "";
  });
  sortBy?.addEventListener("change", sortAgain);
  $(".tools", box).hidden = rows.length < 8;
  table.addEventListener("click", (event) => {
    const button = event.target.closest("[data-cell]");
    if (button) openCell(box.dataset.suite, Number(box.dataset.table), ...button.dataset.cell.split(" ").map(Number));
  });
}

// ---- the dialog -----------------------------------------------------------------------------------------

const dialog = $("#dialog");
const pages = []; // a stack: the last page is shown, and Back returns to the one before it

function show(title, body) {
  pages.push({ title, body });
  showTopPage();
}

function showTopPage() {
  const { title, body } = pages.at(-1);
  $("#dialog-title").replaceChildren(...prose(title));
  $("#dialog-body").replaceChildren(...body);
  $("#dialog-back").hidden = pages.length < 2;
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  $("#dialog-title").focus();
}

$("#dialog-back").addEventListener("click", () => {
  pages.pop();
  showTopPage();
});
$("#dialog-close").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => pages.splice(0));
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close()); // a click outside

/** Return a list of terms and values without the empty values. */
const list = (pairs) =>
  el("dl", {}, pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined).map(([term, value]) =>
    el("div", { class: (value.textContent ?? String(value)).length > 36 ? "wide" : null }, el("dt", {}, term), el("dd", {}, value))));

/** Show the runs behind a cell in the dialog. */
async function openCell(suite, number, r, c) {
  const [tables, { runs }] = await Promise.all([block(`suite-${suite}`), block("index")]);
  const table = tables[number];
  const cell = table.cells.find(([row, column]) => row === r && column === c)[2];
  const value = (v) => ({ show: typeof v === "string" ? v : fixed(v, table.decimals + 1), sort: typeof v === "string" ? null : v });
  const rows = cell.units.map(([protocol, seed, v, indices]) => [
    { show: protocol },
    { show: String(seed), sort: seed },
    value(v),
    { show: el("span", { class: "row" }, indices.map((n, i) =>
      el("button", { type: "button", click: () => openRecord(n), "aria-label": `Record of ${runs[n].join(", ")}` },
        i ? "subtracted record" : "record"))) },
  ]);
  show(`${table.rows[r]}: ${table.columns[c]}`, [
    list([
      ["Ours", cell.ours],
      ["The paper’s", cell.paper],
      ["Difference", cell.difference],
      ["Selection rule", cell.rules.join(", ")],
      ["Failed", cell.failed || ""],
      ["Runs in the store", cell.absent],
    ]),
    ...table.versus.filter((v) => v.row === table.rows[r]).map((v) => el("p", {}, versusText(v))),
    el("h3", {}, "Runs"),
    el("div", { class: "scroll" }, dataTable("Runs",
      [{ title: "Protocol" }, { title: "Seed", number: true }, { title: "Value", number: true }, { title: "Record" }], rows)),
  ]);
}

/** Return a sentence about the comparison of one row with another. */
function versusText(v) {
  const other = v.family === "reference" ? bare(v.other) : `${bare(v.other)}, the best other row`;
  const interval = v.low === null ? "" : ` (${document.body.dataset.level} interval ${fixed(v.low, 2)} to ${fixed(v.high, 2)})`;
  return `Difference from ${other}: ${signed(v.difference, 2)}${interval} on the tested columns; p ${v.p}, ` +
    `corrected ${v.adjusted}; ${v.pairs} pair${v.pairs === 1 ? "" : "s"}.`;
}

/** Show a record in the dialog. */
async function openRecord(n) {
  const [shown, { curves }] = await Promise.all([record(n), block("index")]);
  const select = shown.select ?? {};
  const seconds = Object.entries(shown.seconds ?? {}).map(([what, s]) => `${what} ${digits(Number(s.toPrecision(3)))} s`);
  const { device, ...versions } = shown.machine ?? {};
  const settings = [...Object.entries(shown.recipe), ...Object.entries(shown.options).map(([k, v]) => [`data: ${k}`, v])];
  show(`${shown.method ?? shown.kind} on ${shown.benchmark} ${shown.protocol.name}, seed ${shown.seed}`, [
    shown.failed ? el("p", { class: "note" }, `Failed: ${shown.failed.kind}: ${shown.failed.message}`) : null,
    curves[n] ? el("p", {}, el("button", { type: "button", click: () => { dialog.close(); showCurves(n); } }, "Show curves")) : null,
    el("h3", {}, "Scores"),
    scores(shown),
    list([
      ["Selection", [select.rule, select.epoch ? `epoch ${select.epoch}` : "", select.alpha === undefined ? "" : `α = ${select.alpha}`].filter(Boolean).join(", ")],
      ["Time", seconds.join(", ")],
      ["Peak memory", shown.peak_memory_mib ? `${digits(Math.round(shown.peak_memory_mib))} MiB` : ""],
      ["Machine", device],
      ["Versions", Object.entries(versions).map((pair) => pair.join(" ")).join(", ")],
      ["Targets without data", (shown.missing ?? []).join(", ")],
      ["File", el("code", {}, shown.file)],
    ]),
    el("h3", {}, "Settings that differ from the defaults"),
    settings.length ? list(settings.map(([k, v]) => [k, typeof v === "string" ? v : JSON.stringify(v)])) : el("p", {}, "None."),
    el("details", {}, el("summary", {}, "Raw record"),
      el("p", { class: "muted" }, "As in its file, without the curves, the views of the mask and the settings at their defaults."),
      el("pre", { tabindex: 0 }, JSON.stringify(shown, null, 1))),
  ].filter(Boolean));
}

/** Return a table of a record's metrics, with a row for each target and selection rule. */
function scores(shown) {
  const rules = shown.rules ?? { [shown.select?.rule ?? ""]: { metrics: shown.metrics } };
  const names = [...new Set(Object.values(rules).flatMap((r) => Object.values(r.metrics).flatMap(Object.keys)))];
  const rows = Object.entries(rules).flatMap(([rule, { epoch, metrics }]) =>
    Object.entries(metrics).map(([target, values]) => [
      { show: rule }, { show: epoch === undefined || epoch === null ? "–" : String(epoch), sort: epoch }, { show: target },
      ...names.map((name) => ({ show: name in values ? digits(values[name]) : "–", sort: values[name] })),
    ]));
  if (!rows.length) return el("p", {}, "None.");
  const columns = [{ title: "Rule" }, { title: "Epoch", number: true }, { title: "Domain" }, ...names.map((title) => ({ title, number: true }))];
  return el("div", { class: "scroll" }, dataTable("Scores by selection rule", columns, rows));
}

// ---- the contents are open on wide screens ----------------------------------------------------------------

const roomy = matchMedia("(min-width: 64rem)");
const fit = () => { $("#contents").open = roomy.matches; };
roomy.addEventListener("change", fit);
fit();
