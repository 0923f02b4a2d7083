// Node: what it is, how sure that is, why, and the row behind it.
import { to } from "../address.js";
import { ask, path } from "../api.js";
import { h, name, some } from "../dom.js";
import { comparable, SPLITS } from "../words.js";
import { says } from "./labels.js";
import { linksTo, rowOf } from "./row.js";
import { why } from "./why.js";

const MOST_INSTANCES = 60, NEAR = 12;

export async function nodeView({ run, runs, rest, query, signal }) {
  const number = rest[0];
  const [node, graph] = await Promise.all([
    ask(path(["runs", run.name, "nodes", run.target, number], { limit: 100 }), { signal }), ask(path(["runs", run.name, "graph"]), { signal })]);
  const { prediction } = node;
  const found = run.explains && (await ask(path(["runs", run.name, "explanations", number], { label: query.get("label") ?? "", instances: MOST_INSTANCES }), { signal }));
  const [metapath, type, other] = (query.get("expand") ?? "").split("|");
  const expanded = other ? { metapath, node: await ask(path(["runs", run.name, "nodes", type, other], { limit: NEAR }), { signal }) } : null;
  const data = h("div.grid.data", {}, rowOf(node), linksTo(run, graph, node));
  const answer = found ? why(run, prediction, found, null, expanded) : [says(run, prediction, null, null), h("p.note", {}, run.why_not)];
  return { title: prediction.name, element: h("div.node", {}, header(run, runs, prediction, "node"), answer, data) };
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
