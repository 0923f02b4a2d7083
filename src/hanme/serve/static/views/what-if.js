// What if: take links away, add some, edit columns, and see what the model would say.
import { change, to } from "../address.js";
import { ask, path } from "../api.js";
import { cut, h, meter, name, percent, plain, section, some } from "../dom.js";
import { relationWords } from "../words.js";
import { added, adding, cellsOf, columnFields, linkOf, refused, tick } from "./edit.js";
import { header } from "./node.js";
import { chips } from "./nodes.js";

const MANY = 12;

export async function whatIfView({ run, runs, rest, query, signal, say }) {
  if (!run.explains) throw new Error(run.why_not);
  const number = Number(rest[0]);
  const [node, graph] = await Promise.all([
    ask(path(["runs", run.name, "nodes", run.target, rest[0]], { limit: 100 }), { signal }), ask(path(["runs", run.name, "graph"]), { signal })]);
  const { probabilities } = node.prediction;
  const label = query.get("label") || run.labels[probabilities.indexOf(Math.max(...probabilities))].name;
  const state = { run, node, number, graph, label, cut: query.getAll("cut"), add: query.getAll("add"), cells: cellsOf(query), signal };
  const body = { remove: state.cut.map(linkOf), add: state.add.map(linkOf), columns: Object.fromEntries(Object.entries(state.cells).map(([column, text]) => [column, text || null])) };
  const result = await ask(path(["runs", run.name, "changes", rest[0]]), { signal, body }).catch((error) => ({ error }));
  const told = changed(state) && !result.error && sentence(state, result);
  if (told) say(told);
  const cells = new Map(), most = h("div.most", { "aria-live": "polite" }, h("p.faint", {}, "Trying single changes …"));
  const own = Object.fromEntries(node.columns.map((one) => [one.column, one.value]));
  const element = h("div.node", {}, header(run, runs, node.prediction, "what-if"), most,
    h("div.what-if", {}, result.error ? refused(result.error) : outcome(state, result),
      h("div.levers", {},
        section("Its links", "Untick a link: the model answers at once, as if the link had never been there.", links(state, cells)),
        adding(state, await added(state), (relation) => linkedBy(state, relation), "Add a link", "Give it a link that it does not have."),
        node.columns.length > 0 && graph.columns.length > 0 && section("Its columns", "Write something else into a column.", columnFields(graph, own, state.cells))),
      told && h("p.result", { "aria-hidden": "true" }, told)));
  attempts(state, cells, most);
  return { title: `What if: ${node.prediction.name}`, element };
}

const changed = (state) => state.cut.length + state.add.length + Object.keys(state.cells).length > 0;

function sentence({ run, label }, { before, after }) {
  const at = run.labels.findIndex((one) => one.name === label);
  const same = before.predicted.join() === after.predicted.join();
  const move = `${plain(label)}: ${percent(before.probabilities[at])} → ${percent(after.probabilities[at])}.`;
  return same ? `Same answer. ${move}` : `The answer changes to ${after.predicted.map(plain).join(", ") || "no label"}. ${move}`;
}

function outcome(state, { before, after }) {
  const { run, label } = state;
  const order = run.labels.map((one, i) => ({ ...one, was: before.probabilities[i], is: after.probabilities[i] })).sort((a, b) => b.was - a.was);
  const shown = order.filter((one, i) => i < MANY || one.name === label || before.predicted.includes(one.name) || after.predicted.includes(one.name));
  const rows = shown.map((one) => {
    const now = changed(state);
    const bar = meter(now ? "span.meter.two" : "span.meter", [now && ["span.was", one.was], ["span.fill", one.is], one.threshold !== null && ["span.threshold", one.threshold]]);
    const inside = [h("span.label", {}, name(one.name)), bar, h("span.value", {}, now ? `${percent(one.was)} → ${percent(one.is)}` : percent(one.was)),
      h("span.marks", {}, after.predicted.includes(one.name) && h("span.chip", {}, now ? "now predicted" : "predicted"))];
    return h("li", {}, h("button.row", { type: "button", id: `label-${order.indexOf(one)}`, "aria-pressed": String(one.name === label), onclick: () => change({ label: one.name }) }, h("span.unseen", {}, "Watch "), inside));
  });
  const same = before.predicted.join() === after.predicted.join();
  return h("section.card.outcome", { "aria-label": "The answer" }, h("h2", {}, changed(state) ? "The answer now" : "The answer as it is"),
    changed(state) && h(same ? "p.verdict" : "p.verdict.turned", {}, same ? "Same answer: " : "The answer changes: ", chips(before.predicted, () => ""), !same && [" → ", chips(after.predicted, () => "")]),
    h("ul.meters", {}, rows),
    h("p.hint", {}, changed(state)
      ? `${some(state.cut.length, "link")} taken away, ${state.add.length} added, ${some(Object.keys(state.cells).length, "column")} changed.`
      : "Nothing is changed yet. Choose a label to watch."),
    h("p.actions", {}, changed(state) && h("button", { type: "button", id: "undo", onclick: () => change({ cut: [], add: [], set: [] }) }, "Undo all"),
      h("a.button.quiet", { href: to(run.name, "node", [state.number], { label }) }, "Why?")),
    h("p.hint", {}, "Computed by the model, as if it had always been so. Share this page by its address."));
}

function links(state, cells) {
  const { node, number } = state;
  const groups = node.links.filter((group) => group.nodes.length);
  if (!groups.length) return h("p.hint", {}, "It has no links.");
  return groups.map((group, g) => h("fieldset", {}, h("legend", {}, relationWords(state.graph, group.relation), h("small", {}, ` ${some(group.count, "link")}${group.count > group.nodes.length ? `, the first ${group.nodes.length}` : ""}`)),
    h("ul.ticks", {}, group.nodes.map((other, i) => {
      const key = `${group.relation}|${number}|${other.number}`;
      const effect = h("span.effect", {}, "");
      cells.set(key, effect);
      return h("li", {}, h("label", {}, h("input", { type: "checkbox", id: `link-${g}-${i}`, checked: !state.cut.includes(key), onchange: (event) => tick("cut", key, !event.target.checked) }), name(other.name)), effect);
    }))));
}

/** The numbers of the nodes that a relation leads to already. */
function linkedBy({ node, add }, relation) {
  const own = node.links.find((group) => group.relation === relation)?.nodes ?? [];
  return new Set([...own.map((other) => other.number), ...add.map(linkOf).filter((link) => link.relation === relation).map((link) => link.target)]);
}

/** Let the server try every single change; say which is the smallest that changes the answer. */
async function attempts(state, cells, most) {
  try {
    const found = await ask(path(["runs", state.run.name, "changes", String(state.number)], { label: state.label }), { signal: state.signal });
    for (const one of found.effects.filter(({ remove }) => remove)) {
      const { relation, source, target } = one.remove;
      cells.get(`${relation}|${source}|${target}`)?.replaceChildren(...effectOf(found, one));
    }
    most.replaceChildren(smallest(state, found));
  } catch (error) {
    if (error.name !== "AbortError") most.replaceChildren(h("p.bad", {}, error.message));
  }
}

/** Say what a single change does: "without it 40 % → Drama". */
function effectOf({ probability }, one) {
  return [h(`span.${one.probability < probability - 0.005 ? "lower" : one.probability > probability + 0.005 ? "raise" : "faint"}`, {}, `without it ${percent(one.probability)}`),
    one.flips && h("b", {}, ` → ${labels(one)}`)].filter(Boolean);
}

const labels = ({ predicted }) => predicted.map((one) => cut(plain(one), 24)).join(", ") || "no label";

function smallest(state, { label, probability, effects }) {
  const [first] = effects, flips = effects.filter((one) => one.flips);
  if (!first) return h("p.note", {}, "There is nothing to change: it has no links and no columns.");
  const moves = ["; ", name(label, "bdi"), ` goes from ${percent(probability)} to ${percent(first.probability)}.`];
  const apply = h("button", { type: "button", id: "apply", onclick: () => change(first.remove
    ? { cut: [`${first.remove.relation}|${first.remove.source}|${first.remove.target}`], add: [], set: [] } : { set: [`${first.column}=${first.value ?? ""}`], cut: [], add: [] }) }, "Try it");
  const others = flips.slice(1, 5).map((one) => h("li", {}, `${one.text} → ${labels(one)}`, ` (${plain(label)} ${percent(one.probability)})`));
  return h("div.note", {}, h("p", {}, flips.length ? ["The smallest change: ", h("b", {}, name(first.text, "bdi")), ", and it is ", h("b", {}, labels(first)), moves]
    : ["No single change would change the answer. The strongest: ", h("b", {}, name(first.text, "bdi")), moves], " ", apply),
  others.length > 0 && h("details", {}, h("summary", {}, `${flips.length - 1} other single ${flips.length === 2 ? "change does" : "changes do"} it, too`), h("ul", {}, others)));
}
