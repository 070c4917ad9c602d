// The explorer: one node, the incoming edges on which it is predicted, and the mask of the adversary as another view.

const LARGEST = 36; // most neighbours drawn with one hop; the table lists more
const FIRST = 16, EACH = 3; // with two hops: most neighbours of the node, and of each of these
const LISTED = 500; // most rows of the table
const TURN = 2 * Math.PI;

const NUMBERS = { u8: Uint8Array, i16: Int16Array, u32: Uint32Array }; // little-endian, as in all browsers
const numbers = async (text, kind) => new NUMBERS[kind](await inflate(text));

/** Return an unpacked view. Edges are sorted by target: `start[v]` to `start[v + 1]` are the edges into node v. */
async function openView(number) {
  const packed = await block(`view-${number}`);
  const [degree, origin, mask, truth, before, after, ...planes] = await Promise.all([
    numbers(packed.degree, "u32"), numbers(packed.origin, "u8"), numbers(packed.mask, "u8"),
    numbers(packed.true, "i16"), numbers(packed.before, "i16"), numbers(packed.after, "i16"),
    ...packed.gaps.map((plane) => numbers(plane, "u8")),
  ]);
  const start = new Uint32Array(packed.nodes + 1);
  const source = new Uint32Array(mask.length);
  for (let v = 0, i = 0; v < packed.nodes; v++) {
    start[v + 1] = start[v] + degree[v];
    for (let last = 0; i < start[v + 1]; i++) {
      source[i] = last += planes[0][i] + planes[1][i] * 2 ** 8 + planes[2][i] * 2 ** 16 + planes[3][i] * 2 ** 24;
    }
  }
  const { nodes, classes, origins, test_graph: usedGraph, test_mask: usedMask } = packed;
  return { nodes, classes, origins, usedGraph, usedMask, start, source, origin, mask, truth, before, after };
}

/** Return the edges into a node, sorted by origin (original edges first) and then from the largest mask. */
function edgesInto(view, v) {
  const edges = [];
  for (let i = view.start[v]; i < view.start[v + 1]; i++) {
    edges.push({ node: view.source[i], origin: view.origin[i], mask: view.mask[i] / 255 });
  }
  return edges.sort((a, b) => a.origin - b.origin || b.mask - a.mask || a.node - b.node);
}

/** Return the edges into a node on which a network predicts, with their weights as masks. Before the game all are 1. */
function usedEdges(view, v, after) {
  const weight = after ? view.usedMask : "ones";
  return edgesInto(view, v)
    .filter((edge) => edge.origin === 0 || view.usedGraph === "enriched")
    .map((edge) => ({ ...edge, mask: weight === "masknet" ? edge.mask : Number(weight === "ones") }));
}

/** Return at most `most` items of a list, evenly spaced. */
const evenly = (items, most) =>
  items.length <= most ? items : Array.from({ length: most }, (_, i) => items[Math.floor((i + 0.5) * items.length / most)]);

/** Return the nodes by how much the game changed them: changed predictions first, then by how small their masks are. */
function byChange(view) {
  const lost = new Float64Array(view.nodes);
  for (let v = 0; v < view.nodes; v++) for (let i = view.start[v]; i < view.start[v + 1]; i++) lost[v] += 1 - view.mask[i] / 255;
  const changed = (v) => Number(view.before[v] !== view.after[v]);
  return [...lost.keys()].sort((a, b) => changed(b) - changed(a) || lost[b] - lost[a]);
}

// ---- marks ----------------------------------------------------------------------------------------------

const DASHED = ["none", "7 4", "1.5 4"]; // by origin
const polygon = (corners, turn = 0, inner = 1) => (r) => {
  const at = (i) => TURN * (i / corners + turn) - TURN / 4;
  return `M${Array.from({ length: corners }, (_, i) => {
    const size = i % 2 ? r * inner : r;
    return `${(size * Math.cos(at(i))).toFixed(1)} ${(size * Math.sin(at(i))).toFixed(1)}`;
  }).join("L")}Z`;
};
const SHAPES = [
  (r) => `M${-r} 0A${r} ${r} 0 1 1 ${r} 0A${r} ${r} 0 1 1 ${-r} 0Z`,
  (r) => polygon(4, 1 / 8)(r * 1.25), (r) => polygon(3)(r * 1.45), (r) => polygon(4)(r * 1.3), (r) => polygon(5)(r * 1.15),
  (r) => polygon(6)(r * 1.15), (r) => polygon(12, 0, 0.72)(r * 1.25),
];

/** Return the mark of a node: shape, colour and number of its class, with a dashed ring if the prediction is wrong. */
function glyph(name, kind, wrong, r) {
  const which = kind < 0 ? 0 : kind % SHAPES.length;
  return [
    wrong ? el("svg:circle", { r: r * 1.65, class: "wrong" }) : null,
    el("svg:path", { d: SHAPES[which](r), class: "glyph", style: `fill: var(${kind < 0 ? "--line" : COLOURS[which]})` }),
    el("svg:text", { y: r * (which === 2 ? 0.5 : 0.36), "font-size": r * 1.1 }, name),
  ];
}

const edgeStyle = (origin, mask) => ({
  class: "edge", "stroke-width": (0.8 + 4 * mask).toFixed(2), "stroke-opacity": (0.15 + 0.85 * mask).toFixed(3),
  "stroke-dasharray": DASHED[origin % 3], style: `stroke: var(--o${origin % 3})`,
});

const ORIGIN_NAMES = { original: "original", knn: "kNN", spectral: "spectral" };

function legend(view) {
  const mark = (width, ...children) => el("svg:svg", { width, height: 22, viewBox: `${-width / 2} -11 ${width} 22`, "aria-hidden": "true" }, children);
  const line = (origin, mask) => mark(40, el("svg:line", { x1: -18, x2: 18, y1: 0, y2: 0, ...edgeStyle(origin, mask) }));
  const item = (picture, text) => el("li", {}, picture, text);
  $("#legend").replaceChildren(
    el("ul", { "aria-label": "Edges" }, view.origins.map((name, i) => item(line(i, 1), `${ORIGIN_NAMES[name] ?? name} edge`)),
      [1, 0.5, 0.1].map((mask) => item(line(0, mask), `weight or mask ${mask}`))),
    el("ul", { "aria-label": "Predicted classes" }, view.classes.slice(0, 12).map((name, i) => item(mark(30, glyph(shortName(view, i), i, false, 8)), name)),
      view.classes.length > 12 ? el("li", {}, `and ${view.classes.length - 12} more, by number`) : null,
      item(mark(30, el("svg:circle", { r: 9, class: "wrong" })), "predicted wrongly")),
  );
}

// ---- the drawing and the tables -------------------------------------------------------------------------

const state = { view: null, node: 0, cursor: -1, order: null, turn: 0 };
const chosen = (name) => $(`#explore input[name=${name}]:checked`).value;
/** Return the text in a mark: the name of the class if it is short, else its number. */
const shortName = (view, c) => (c < 0 ? "?" : view.classes[c].length < 3 ? view.classes[c] : String(c + 1));
const className = (view, c) => (c < 0 ? "unknown" : view.classes[c].length < 3 ? view.classes[c] : `${c + 1} ${view.classes[c]}`);
const wrongly = (view, v, predicted) => view.truth[v] >= 0 && view.truth[v] !== predicted[v];

function drawNode() {
  const { view, node } = state;
  const after = chosen("moment") === "after";
  const two = chosen("hops") === "2";
  const predicted = after ? view.after : view.before;
  const used = chosen("edges") === "used";
  const shown = (v) => (used ? usedEdges(view, v, after) : edgesInto(view, v));
  const what = used ? "weight" : "mask";
  const into = shown(node);
  const ring = evenly(into, two ? FIRST : LARGEST);
  const sectors = [...new Set(ring.map((edge) => edge.origin))];
  const gap = sectors.length > 1 ? 0.6 : 0;
  const room = ring.length + gap * sectors.length;
  const radius = two ? 160 : 265;
  const near = new Map(ring.map((edge, i) => {
    const turn = TURN * (i + 0.5 + gap * (sectors.indexOf(edge.origin) + 0.5)) / room - TURN / 4;
    return [edge.node, { ...edge, turn, x: radius * Math.cos(turn), y: radius * Math.sin(turn) }];
  }));
  const far = new Map();
  const lines = [...near.values()].map((to) => ({ ...to, x2: 38 * Math.cos(to.turn), y2: 38 * Math.sin(to.turn) }));
  if (two) for (const [v, from] of near) {
    const next = evenly(shown(v).filter((e) => e.node !== node && !near.has(e.node) && !far.has(e.node)), EACH);
    next.forEach((edge, i) => {
      const turn = from.turn + TURN / room * (i - (next.length - 1) / 2) / EACH;
      const at = { ...edge, turn, x: 290 * Math.cos(turn), y: 290 * Math.sin(turn) };
      far.set(edge.node, at);
      lines.push({ ...at, x2: from.x, y2: from.y });
    });
  }
  const describe = (v) => `Node ${v}: true ${className(view, view.truth[v])}, predicted ${className(view, predicted[v])}${wrongly(view, v, predicted) ? ", wrong" : ""}`;
  const place = ([v, at], i) => el("svg:g", {
    id: `n-${i}`, class: "node", role: "img", "data-node": v, transform: `translate(${at.x.toFixed(1)} ${at.y.toFixed(1)})`, click: () => goTo(v),
    "aria-label": `${describe(v)}; ${view.origins[at.origin]} edge, ${what} ${at.mask.toFixed(2)}`,
  }, el("svg:title", {}, `${describe(v)}; ${view.origins[at.origin]} edge, ${what} ${at.mask.toFixed(2)}`),
    el("svg:circle", { r: 17, class: "reach" }), glyph(shortName(view, predicted[v]), predicted[v], wrongly(view, v, predicted), two ? 9 : 12));
  $("#graph").replaceChildren(
    el("svg:g", { "aria-hidden": "true" }, lines.map((line) =>
      el("svg:line", { x1: line.x, y1: line.y, x2: line.x2, y2: line.y2, ...edgeStyle(line.origin, line.mask) }))),
    ...[...near, ...far].map(place),
    el("svg:g", { class: "focal", role: "img", "aria-label": describe(node) }, el("svg:title", {}, describe(node)),
      el("svg:circle", { r: 32, class: "halo" }), glyph(shortName(view, predicted[node]), predicted[node], wrongly(view, node, predicted), 18)),
  );
  state.cursor = -1;
  $("#graph").removeAttribute("aria-activedescendant");
  const verdict = (of) => `${className(view, of[node])}${view.truth[node] < 0 ? "" : wrongly(view, node, of) ? " (wrong)" : " (right)"}`;
  $("#node-about").replaceChildren(
    el("strong", {}, `Node ${node}`), `, true class ${className(view, view.truth[node])}. Prediction before the game: `,
    el("strong", {}, verdict(view.before)), ", after it: ", el("strong", {}, verdict(view.after)), `. ${into.length} incoming edge${into.length === 1 ? "" : "s"}${used ? " used by the prediction" : ", with the mask of the adversary"}` +
    (ring.length < into.length ? `, of which ${ring.length} are drawn, evenly spaced by origin and ${what}. The table lists ${into.length > LISTED ? LISTED : "all"}.` : "."));
  tables(view, into, predicted, used ? "Weight" : "Mask");
}

function tables(view, edges, predicted, what) {
  const number = (value) => ({ show: value.toFixed(2), sort: value });
  const mean = (group) => group.reduce((sum, edge) => sum + edge.mask, 0) / group.length;
  const groups = view.origins.map((name, i) => [name, edges.filter((edge) => edge.origin === i)]).filter(([, group]) => group.length);
  $("#origins").replaceChildren(dataTable("Edges by origin",
    [{ title: "Origin" }, { title: "Edges", number: true }, { title: `Mean ${what.toLowerCase()}`, number: true }, { title: "Below 0.5", number: true }],
    groups.map(([name, group]) => {
      const weak = group.filter((edge) => edge.mask < 0.5).length;
      return [{ show: ORIGIN_NAMES[name] ?? name }, { show: String(group.length), sort: group.length }, number(mean(group)), { show: String(weak), sort: weak }];
    })));
  $("#neighbours").replaceChildren(dataTable("Neighbours",
    [{ title: "Node", number: true }, { title: "Origin" }, { title: what, number: true }, { title: "True" }, { title: "Predicted" }],
    evenly(edges, LISTED).map((edge) => [
      { show: el("button", { type: "button", click: () => goTo(edge.node), "aria-label": `Go to node ${edge.node}` }, String(edge.node)), sort: edge.node },
      { show: ORIGIN_NAMES[view.origins[edge.origin]] ?? view.origins[edge.origin] }, number(edge.mask),
      { show: className(view, view.truth[edge.node]) },
      { show: className(view, predicted[edge.node]) + (wrongly(view, edge.node, predicted) ? " ✗" : "") },
    ])));
}

function goTo(v) {
  state.node = v;
  $("#node").value = v;
  drawNode();
}

async function pickView() {
  state.view = await openView($("#view").value);
  Object.assign(state, { order: byChange(state.view), turn: 0 });
  $("#node").max = state.view.nodes - 1;
  legend(state.view);
  goTo(state.order[0]);
}

function moveCursor(event) {
  const nodes = $$(".node", $("#graph"));
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (event.key === "Enter" && state.cursor >= 0) goTo(Number(nodes[state.cursor].dataset.node));
  else if (step && nodes.length) {
    nodes[state.cursor]?.classList.remove("cursor");
    state.cursor = state.cursor < 0 ? (step > 0 ? 0 : nodes.length - 1) : (state.cursor + step + nodes.length) % nodes.length;
    nodes[state.cursor].classList.add("cursor");
    $("#graph").setAttribute("aria-activedescendant", nodes[state.cursor].id);
  } else return;
  event.preventDefault();
}

if ($("#explore")) {
  $("#explore").addEventListener("submit", (event) => {
    event.preventDefault();
    if (state.view) goTo(Math.min(Math.max(0, Math.floor(Number($("#node").value))), state.view.nodes - 1));
  });
  $("#view").addEventListener("change", pickView);
  $("#view-record").addEventListener("click", () => openRecord(Number($("#view").selectedOptions[0].dataset.record)));
  $("#random").addEventListener("click", () => state.view && goTo(Math.floor(Math.random() * state.view.nodes)));
  $("#changed").addEventListener("click", () => {
    if (state.view) goTo(state.order[(state.turn = (state.turn + 1) % state.view.nodes)]);
  });
  for (const input of $$("#explore input[type=radio]")) input.addEventListener("change", () => state.view && drawNode());
  $("#graph").addEventListener("keydown", moveCursor);
  near($("#explorer"), pickView);
}

performance.mark("interactive");
