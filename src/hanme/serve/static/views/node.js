// Node: what it is, how sure that is, and why.
import { change, nodeOf, to } from "../address.js";
import { ask, path } from "../api.js";
import { balance } from "../charts.js";
import { count, cut, figure, h, meter, name, percent, plain, section, signed, some, table } from "../dom.js";
import { instanceGraph, keyOf } from "../graph.js";
import { blockWords, comparable, grouped, metapathWords, namesOf, relationWords, SPLITS, START } from "../words.js";
import { effectOf, linksOf, tryEach } from "./changes.js";
import { chips } from "./nodes.js";
import { linksTo, rowOf } from "./row.js";

const TOP = 100, TRIED = 12, MANY = 12;
const BY = { part: "what they add", move: "what would change without them", attention: "attention" };

export async function nodeView({ run, runs, rest, query, signal }) {
  const number = rest[0];
  const node = await ask(path(["runs", run.name, "nodes", run.target, number], { limit: 100 }), { signal });
  const { prediction } = node;
  const label = query.get("label") ?? "";
  const graph = await ask(path(["runs", run.name, "graph"]), { signal });
  const data = h("div.grid.data", {}, rowOf(node), linksTo(run, graph, node));
  if (!run.explains) return { title: prediction.name, element: h("div.node", {}, header(run, runs, prediction, "node"), says(run, prediction, null, null), h("p.note", {}, run.why_not), data) };
  const asked = { label, against: query.get("alone") ? "" : query.get("against") ?? rivalOf(run, prediction, label), by: BY[query.get("by")] ? query.get("by") : "part", top: TOP };
  const first = await ask(path(["runs", run.name, "explanations", number], asked), { signal });
  const chosen = query.get("path") ?? first.instances[0]?.metapath ?? "";
  const found = chosen ? await ask(path(["runs", run.name, "explanations", number], { ...asked, metapath: chosen }), { signal }) : first;
  const links = await mattering({ run, node, number, label: first.label, signal });
  return { title: prediction.name, element: h("div.node", {}, header(run, runs, prediction, "node"), why(run, prediction, { ...first, instances: found.instances }, { chosen, links }), data) };
}

/** The labels with their probabilities, likeliest first. */
const ranked = (run, prediction) => run.labels.map((label, i) => ({ ...label, p: prediction.probabilities[i] })).sort((a, b) => b.p - a.p);

/** Where a node has one label: the likeliest one but that which is asked about. */
export function rivalOf(run, prediction, label) {
  const [first, second] = ranked(run, prediction);
  return run.multilabel || !second ? "" : label && label !== first.name ? first.name : second.name;
}

/** The name of a node, what it was used for, and the ways to look at it. */
export function header(run, runs, prediction, view) {
  const other = runs.find((one) => comparable(run, one));
  const tab = (words, where, rest) => h("a", { href: to(run.name, where, rest), "aria-current": where === view ? "page" : null }, words);
  return h("header", {}, about(run, prediction),
    h("nav.tabs", { "aria-label": "This node" }, tab("Why?", "node", [prediction.node]), run.explains && tab("What if?", "what-if", [prediction.node]),
      other && tab(`Compare with ${other.name}`, "compare", [other.name, prediction.node])));
}

/** The name of a node and what it was used for. */
export function about(run, prediction) {
  return [h("h1", {}, name(prediction.name, "bdi")),
    h("p.lead", {}, `${run.target} `, prediction.id !== prediction.name && name(prediction.id), prediction.split && ` · ${SPLITS[prediction.split] ?? prediction.split}`, ` · ${some(prediction.degree, "link")}`)];
}

/** Explain one node: its labels, the sum behind the chosen one, its paths and its features. */
export function why(run, prediction, found, { chosen, links = null, report = null }) {
  return h("div.grid.uneven", {},
    h("div.stack", {}, says(run, prediction, found.label, report), links),
    sum(run, prediction, found, report, !report && !run.multilabel && run.labels.length > 1 && rivals(run, prediction, found)),
    paths(run, found, chosen, report),
    reasons(run, found, report));
}

/** Its links, each tried by itself: what the model would say without it. They come in one by one. */
async function mattering(state) {
  const links = linksOf(state.node).slice(0, TRIED);
  if (!links.length) return null;
  const graph = await ask(path(["runs", state.run.name, "graph"]), { signal: state.signal });
  const cells = new Map(links.map(({ key }) => [key, h("span.effect.faint", {}, "…")]));
  const rows = new Map(links.map(({ key, other, relation }) => [key, h("li", {}, h("span", {}, h("a", { href: nodeOf(state.run, other.type, other.number) }, name(other.name)), h("small", {}, relationWords(graph, relation))), cells.get(key))]));
  const list = h("ul.ticks", {}, [...rows.values()]);
  tryEach(state, links, (one) => cells.get(one.key).replaceChildren(...effectOf(one)))
    .then((found) => list.append(...found.sort((a, b) => Math.abs(b.is - b.was) - Math.abs(a.is - a.was)).map((one) => rows.get(one.key))))
    .catch((error) => error.name === "AbortError" || list.replaceChildren(h("li.bad", {}, error.message)));
  const more = state.node.links.reduce((sum, group) => sum + group.count, 0) - links.length;
  return section("Which links matter?", ["How likely ", name(state.label), " would be without each of its links."], list,
    more > 0 && h("p.hint", {}, `The first ${TRIED}; ${some(more, "more link")} under “What if?”.`));
}

/** The labels with their probabilities; a click asks why. */
export function says(run, prediction, asked, report) {
  const order = ranked(run, prediction);
  const shown = order.filter((label, i) => i < MANY || label.name === asked || prediction.predicted.includes(label.name) || prediction.labels.includes(label.name));
  const rows = shown.map((label) => {
    const bar = meter("span.meter", [["span.fill", label.p], label.threshold !== null && ["span.threshold", label.threshold]]);
    const given = prediction.predicted.includes(label.name), there = prediction.labels.includes(label.name);
    const inside = [h("span.label", {}, name(label.name)), bar, h("span.value", {}, percent(label.p, label.p > 0.995 || label.p < 0.005 ? 1 : 0)),
      h("span.marks", {}, given && h("span.chip", {}, "predicted"), there && h("span.chip.true", {}, "true"))];
    return h("li", {}, asked === null || report ? h("span.row", {}, inside)
      : h("button.row", { type: "button", id: `why-${order.indexOf(label)}`, "aria-pressed": String(label.name === asked), onclick: () => change({ label: label.name, against: null }) }, h("span.unseen", {}, "Why "), inside));
  });
  const rule = run.multilabel ? "A label is given where its bar passes the mark." : "The likeliest label is given.";
  return section("What the model says", [rule, asked !== null && !report && " Choose a label to ask why."], h("ul.meters", {}, rows), shown.length < order.length && h("p.hint", {}, `${some(order.length - shown.length, "less likely label")} not shown.`), verdict(prediction));
}

function verdict(prediction) {
  if (!prediction.labels.length) return h("p.hint", {}, "The true label is not known.");
  return prediction.wrong ? h("p.bad", {}, "✗ This is wrong. True: ", chips(prediction.labels, () => "")) : h("p.good", {}, "✓ This is right.");
}

/** The score of a label as the sum that it is. */
export function sum(run, prediction, found, report, choice = null) {
  const ways = found.metapaths.map((one) => ({ name: metapathWords(one.metapath), value: one.part }));
  const parts = grouped(Object.entries(found.others).map(([name, value]) => ({ name, value })), blockWords);
  const rows = [...ways.map((row) => ({ ...row, name: `paths: ${row.name}` })), ...parts].filter((row) => row.name !== START)
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const start = parts.filter((row) => row.name === START);
  const shown = rows.slice(0, 9), rest = rows.slice(9).reduce((all, row) => all + row.value, 0);
  if (rows.length > 9) shown.push({ name: some(rows.length - 9, "smaller part"), value: rest });
  const total = { name: found.against ? `ahead of ${found.against}` : `score of ${found.label}`, value: found.logit, strong: true };
  const strongest = (sign) => rows.filter((row) => Math.sign(row.value) === sign)[0];
  const [up, down] = [strongest(1), strongest(-1)], single = found.reasons.map((one) => ({ ...one, where: blockWords(one.block) }));
  const most = (words, row) => {
    const first = row && single.find((one) => one.where === row.name && Math.sign(one.part) === Math.sign(row.value));
    return row && [words, h("b", {}, row.name), ` (${signed(row.value)})`, first && [", above all ", h("b", {}, name(first.what))], ". "];
  };
  return h("section.card", {}, h("h2", {}, "Why ", name(found.label, "bdi"), "?"),
    h("p.about", {}, percent(found.probability), " likely", found.against ? [", and ", name(found.against), " ", percent(prediction.probabilities[run.labels.findIndex((one) => one.name === found.against)])] : "", ". ", most("Most in favour: ", up), most("Most against: ", down)),
    choice,
    figure(`What adds up to ${scored(found)}`, balance([...shown, ...start, total]),
      table("Parts of the score", ["part", "adds"], [...rows, ...start, total].map((row) => [row.name, signed(row.value, 4)]), { numeric: [1] }),
      `All parts add up to ${scored(found)}, exactly. ${found.against ? "The further above 0, the likelier it is of the two." : "The higher the score, the likelier the label."}`),
    !report && h("p", {}, h("a.button", { href: to(run.name, "what-if", [prediction.node], { label: found.label }) }, "What would change it?")));
}

/** What the parts add up to: the score of a label, or how far it is ahead of another one. */
const scored = ({ label, against }) => (against ? `the lead of ${cut(plain(label), 40)} over ${cut(plain(against), 40)}` : `the score of ${cut(plain(label), 40)}`);

/** Where a node has one label, only leads matter: choose the label that the asked one is compared with. */
function rivals(run, prediction, found) {
  const others = ranked(run, prediction).filter((label) => label.name !== found.label);
  return h("label.order", {}, h("span", {}, "Compared with "), h("select", { id: "against", onchange: ({ target }) => change(target.value ? { against: target.value, alone: null } : { against: null, alone: "1" }) },
    others.map((label) => h("option", { value: label.name, selected: label.name === found.against }, `${cut(plain(label.name), 40)}, ${percent(label.p)}`)),
    h("option", { value: "", selected: !found.against }, "no other label")));
}

/** The paths along one metapath that is chosen by buttons; in a report, along each. */
function paths(run, found, chosen, report) {
  if (!found.metapaths.length) return null;
  const tabs = found.metapaths.map((one, i) => h("button", { type: "button", id: `path-${i}`, "aria-pressed": String(one.metapath === chosen), onclick: () => change({ path: one.metapath }) },
    metapathWords(one.metapath), h("small", {}, `${some(one.instances, "path")} · adds ${signed(one.part)}`)));
  const shown = report ? found.metapaths.filter((one) => one.instances > 0) : found.metapaths.filter((one) => one.metapath === chosen);
  return h("section.card.whole", {}, h("h2", {}, "The paths it looked at"),
    h("p.about", {}, "A path leads from this node over its links to another one. ", h("span.key.for", {}, "Blue"), ` paths raise ${scored(found)}, `, h("span.key.against", {}, "orange"), " ones lower it; the wider, the more attention."),
    !report && h("div.shows", { role: "group", "aria-label": "Kind of path" }, tabs),
    shown.map((one) => [report && h("h3", {}, metapathWords(one.metapath)), along(run, found, one, report)]),
    found.instances.length === 0 && h("p.hint", {}, "There is no such path from here."));
}

/** The picture of the paths along a metapath, and a list beside it. */
function along(run, found, metapath, report) {
  const href = report ?? ((type, number) => nodeOf(run, type, number));
  const own = found.instances.filter((one) => one.metapath === metapath.metapath);
  if (!own.length) return h("p.hint", {}, `None of these ${some(metapath.instances, "path")} is among the first.`);
  const items = new Map(own.map((one) => [keyOf(one), h("tr", {}, ...cells(one, href))]));
  const light = (keys) => items.forEach((row, key) => row.classList.toggle("lit", keys?.includes(key) ?? false));
  const order = h("label.order", {}, h("span", {}, "Order by "), h("select", { id: "order", onchange: (event) => change({ by: event.target.value }) },
    Object.entries(BY).map(([key, words]) => h("option", { value: key, selected: key === found.by }, words))));
  const few = own.length < metapath.instances ? `The first ${count(own.length)} of ${some(metapath.instances, "path")}. ` : "";
  return h("div.beside", {}, instanceGraph(own, scored(found), { href, onpick: light }),
    h("div", {}, !report && order,
      h("div.scroll.list", { tabindex: 0, role: "group", "aria-label": `Paths along ${metapath.metapath} as a list` }, h("table", {}, h("caption.unseen", {}, `Paths along ${metapath.metapath}`),
        h("thead", {}, h("tr", {}, ["path", "attention", "adds", "without it"].map((head, i) => h(i ? "th.number" : "th", { scope: "col" }, head)))), h("tbody", {}, [...items.values()]))),
      h("p.hint", {}, `${few}Adds: its part of ${scored(found)}. Without it: how that would change if this path alone were gone.`)));
}

function cells(one, href) {
  const ways = namesOf(one).map((title, i) => {
    const { type, number } = one.nodes[i + 1], address = title === "itself" ? null : href(type, number);
    return [i > 0 && " → ", address ? h("a", { href: address }, name(title)) : name(title)];
  });
  return [h("th", { scope: "row" }, ways), h("td.number", {}, percent(one.attention, 1)), h("td.number", {}, signed(one.part, 3)), h("td.number", {}, signed(-one.move, 3))];
}

/** What counts most in the linear part. */
export function reasons(run, found, report) {
  if (!found.reasons.length) return null;
  const what = (one) => {
    const address = one.node && (report ? report(one.node.type, one.node.number) : nodeOf(run, one.node.type, one.node.number));
    return address ? h("a", { href: address }, name(one.what)) : name(one.what);
  };
  const rows = found.reasons.slice(0, 15);
  return h("section.card.whole", {}, h("h2", {}, "Features and neighbours that mattered"),
    h("p.about", {}, `What the linear part adds to ${scored(found)}, one by one, largest first.`),
    table("Features and neighbours", ["what", "where", "adds"], rows.map((one) => [what(one), blockWords(one.block), h(`span.${one.part < 0 ? "lower" : "raise"}`, {}, signed(one.part, 3))]), { numeric: [2], hidden: true }));
}
