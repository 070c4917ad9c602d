// Plots: training curves of a run and time by graph size. The library is unpacked when a plot first comes into view.

let library = null;

/** Return the plotting library. It is loaded only once. */
function plotly() {
  library ??= blockText("library").then((text) => {
    document.head.append(el("script", {}, text));
    return window.Plotly;
  });
  return library;
}

/** Call `callback` once, when an element comes close to the visible area. */
function near(element, callback) {
  const watch = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    watch.disconnect();
    callback();
  }, { rootMargin: "300px" });
  watch.observe(element);
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const plots = new Map(); // canvas → traces and axes; they are drawn again when the colour scheme changes
const COLOURS = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5", "--c6"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const MARKERS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star"];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

async function draw(canvas, traces, axes) {
  plots.set(canvas, [traces, axes]);
  const library = await plotly();
  const [ink, line] = [colour("--muted"), colour("--line")];
  const axis = (text) => ({
    title: { text, font: { size: 13 } }, gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true,
    ...(axes.log ? { type: "log", dtick: 1 } : {}),
  });
  const layout = {
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "x unified",
    hoverlabel: { bgcolor: colour("--paper"), bordercolor: line, font: { color: colour("--ink") } },
    margin: { l: 8, r: 8, t: 28, b: 8 }, height: 320, showlegend: true,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: ink, activecolor: colour("--accent"), orientation: "v" },
    xaxis: axis(axes.x), yaxis: { ...axis(axes.y), range: axes.range },
  };
  const styled = traces.map((trace, i) => ({
    type: "scatter", mode: trace.sparse ? "lines+markers" : "lines", connectgaps: true, ...trace,
    line: { width: 2, color: colour(COLOURS[i % COLOURS.length]), dash: DASHES[i % DASHES.length] },
    marker: { size: 6, symbol: MARKERS[i % MARKERS.length], color: colour(COLOURS[i % COLOURS.length]) },
  }));
  await library.react(canvas, styled, layout, {
    responsive: true, displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  });
}

dark.addEventListener("change", () => plots.forEach(([traces, axes], canvas) => draw(canvas, traces, axes)));

// ---- training curves ------------------------------------------------------------------------------------

const GROUPS = [
  ["Losses", "loss", /^(loss|adversary|augmented|mixed|divergence|penalty|contrast|variance|kl)\b/],
  ["Mean mask by origin", "mean mask", /^mask\b/, [0, 1.03]],
  ["Selection scores by strength α", "score on held-out nodes", /^select\b/],
  ["Gradients and other values", "value", /./],
];

/** Return [name, values] of each curve of the record with index n. */
async function curvesOf(n) {
  const [blockNumber, place] = (await block("index")).curves[n];
  const coded = (await block(`curves-${blockNumber}`))[place];
  return Object.entries(coded).map(([name, [e, steps]]) => {
    let total = 0;
    return [name, steps.map((step) => (step === null ? null : (total += step) / 10 ** e))];
  });
}

/** Draw the curves of the record with index n, grouped by kind, and list them in a table. */
async function drawRun(n) {
  const curves = await curvesOf(n);
  const epochs = Object.fromEntries(curves).epoch ?? curves[0][1].map((_, i) => i + 1);
  const rest = curves.filter(([name]) => name !== "epoch");
  const figures = [];
  for (const [title, y, pattern, range] of GROUPS) {
    const group = rest.filter(([name]) => pattern.test(name));
    group.forEach((curve) => rest.splice(rest.indexOf(curve), 1));
    if (!group.length) continue;
    const traces = group.map(([name, values]) => ({
      name: name.replace(/^select /, "α = "), x: epochs, y: values, sparse: values.includes(null) || values.length < 12,
    }));
    const canvas = el("div", { class: "canvas", role: "img", "aria-label": `${title} by epoch; the numbers are in the table below` });
    figures.push([el("figure", { class: "plot" }, el("figcaption", {}, title), canvas), canvas, traces, { x: "epoch", y, range }]);
  }
  plots.forEach((_, canvas) => canvas.closest("#plots") && plots.delete(canvas));
  $("#plots").replaceChildren(...figures.map(([figure]) => figure));
  const number = (v) => ({ show: digits(v), sort: v });
  const rows = curves.filter(([name]) => name !== "epoch").map(([name, values]) => {
    const present = values.filter((v) => v !== null);
    return [{ show: name }, ...[present[0], present.at(-1), Math.min(...present), Math.max(...present)].map(number)];
  });
  const columns = [{ title: "Curve" }, ...["First", "Last", "Minimum", "Maximum"].map((title) => ({ title, number: true }))];
  $("#curves-table .scroll").replaceChildren(dataTable("Curves as numbers", columns, rows));
  $("#curves-table").hidden = false;
  await Promise.all(figures.map(([, canvas, traces, axes]) => draw(canvas, traces, axes)));
}

/** List the rows with curves of the chosen section, and select the run `wanted`. */
async function pickSuite(wanted = null) {
  const [tables, index] = await Promise.all([block(`suite-${$("#pick-suite").value}`), block("index")]);
  const groups = tables.map((table, t) => {
    const runs = new Map();
    for (const [r, , cell] of table.cells) {
      for (const [, , , indices] of cell.units) for (const n of indices) if (index.curves[n]) runs.set(r, (runs.get(r) ?? new Set()).add(n));
    }
    return el("optgroup", { label: bare(table.title) }, [...runs].map(([r, indices]) =>
      el("option", { value: `${t} ${r}`, "data-runs": [...indices].join(" ") }, bare(table.rows[r]))));
  });
  $("#pick-row").replaceChildren(...groups.filter((group) => group.childElementCount));
  const option = wanted === null ? null : $$("#pick-row option").find((o) => o.dataset.runs.split(" ").includes(String(wanted)));
  if (option) option.selected = true;
  await pickRow(wanted);
}

/** List the runs of the chosen row, and draw the run `wanted` or the first. */
async function pickRow(wanted = null) {
  const { runs } = await block("index");
  const indices = ($("#pick-row").selectedOptions[0]?.dataset.runs ?? "").split(" ").filter(Boolean).map(Number);
  const methods = new Set(indices.map((n) => runs[n][1]));
  $("#pick-run").replaceChildren(...indices.map((n) => {
    const [benchmark, method, protocol, seed] = runs[n];
    return el("option", { value: n, selected: n === wanted }, `${methods.size > 1 ? `${method}: ` : ""}${benchmark} ${protocol}, seed ${seed}`);
  }));
  for (const control of ["#pick-row", "#pick-run", "#pick-record"]) $(control).disabled = !indices.length;
  $("#curves-note").textContent = indices.length ? "" : "This page has no curves for the runs of this table.";
  if (indices.length) await drawRun(Number($("#pick-run").value));
  else {
    $("#plots").replaceChildren();
    $("#curves-table").hidden = true;
  }
}

/** Scroll to the curves and show those of the record with index n. */
async function showCurves(n) {
  $("#curves").scrollIntoView();
  $("#pick-run").focus({ preventScroll: true });
  await pickRun(n);
}

/** Select a run in the first table that contains it. */
async function pickRun(n) {
  for (const { value } of $("#pick-suite").options) {
    const tables = await block(`suite-${value}`);
    if (!tables.some((table) => table.cells.some(([, , cell]) => cell.units.some(([, , , indices]) => indices.includes(n))))) continue;
    $("#pick-suite").value = value;
    break;
  }
  await pickSuite(n);
}

if ($("#pick")) {
  $("#pick-suite").addEventListener("change", () => pickSuite());
  $("#pick-row").addEventListener("change", () => pickRow());
  $("#pick-run").addEventListener("change", () => drawRun(Number($("#pick-run").value)));
  $("#pick-record").addEventListener("click", () => openRecord(Number($("#pick-run").value)));
  $("#pick").addEventListener("submit", (event) => event.preventDefault());
  near($("#curves"), async () => $("#pick-run").value || pickRun((await block("index")).first));
}

// ---- time by graph size ---------------------------------------------------------------------------------

for (const figure of $$(".growth")) {
  near(figure, () => {
    const rows = [...$("table", figure.closest(".table")).tBodies[0].rows];
    const nodes = (row) => Number(row.cells[0].textContent.replaceAll(",", "").match(/^\s*(\d+) nodes\s*$/)?.[1] ?? 0);
    const sized = rows.filter(nodes).sort((a, b) => nodes(a) - nodes(b));
    const exponents = rows.find((row) => row.cells[0].textContent.trim() === "exponent");
    const value = (cell, which = 0) => JSON.parse(cell?.dataset.sort ?? "[null,null]")[which];
    const headers = $$("thead th", figure.closest(".table")).map((th) => th.textContent.trim());
    const traces = headers.flatMap((header, i) => {
      if (!header.endsWith(", s")) return [];
      const [fitted, paper] = [0, 1].map((which) => value(exponents?.cells[i], which));
      const name = header.slice(0, -3) + (fitted === null ? "" : `: N^${fitted.toFixed(2)}, paper N^${paper}`);
      return [{ name, sparse: true, x: sized.map(nodes), y: sized.map((row) => value(row.cells[i])) }];
    });
    draw($(".canvas", figure), traces, { x: "nodes", y: "seconds", log: true });
  });
}
