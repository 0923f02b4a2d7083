// Ask what the model would say without some links or paths, or with others.
import { ask, path } from "../api.js";
import { cut, h, percent, plain } from "../dom.js";

/** Ask what it says of a node without the links `cut`, with the links `add`, without the paths `drop`, each written as in an address. */
export function tried({ run, number, signal }, { cut: away = [], drop = [], add = [] }) {
  const body = { remove: away.map(linkOf), add: add.map(linkOf), instances: drop.map(instanceOf) };
  return ask(path(["runs", run.name, "changes", String(number)]), { signal, body });
}

/** Read a link: its relation, which may hold any character, and two numbers. */
export function linkOf(text) {
  const parts = text.split("|");
  const [source, target] = parts.slice(-2).map(Number);
  return { relation: parts.slice(0, -2).join("|"), source, target };
}

function instanceOf(text) {
  const [metapath, ...nodes] = text.split("|");
  return { metapath, nodes: nodes.map(Number) };
}

/** The links of a node, written as in an address: [{key, other, relation}]. */
export function linksOf(node) {
  return node.links.flatMap((group) => group.nodes.map((other) => ({ key: `${group.relation}|${node.number}|${other.number}`, other, relation: group.relation })));
}

/** Try each link by itself, one after the other; tell `each` what a label's probability was and is, and whether the answer turns. */
export async function tryEach(state, links, each) {
  const at = state.run.labels.findIndex((one) => one.name === state.label), found = [];
  for (const link of links) {
    const { before, after } = await tried(state, { cut: [link.key] });
    const one = { ...link, was: before.probabilities[at], is: after.probabilities[at], turned: before.predicted.join() !== after.predicted.join(), after };
    found.push(one);
    each(one);
  }
  return found;
}

/** Say what a link does: "without it 40 % → Drama". */
export function effectOf({ was, is, turned, after }) {
  return [h(`span.${is < was - 0.005 ? "lower" : is > was + 0.005 ? "raise" : "faint"}`, {}, `without it ${percent(is)}`),
    turned && h("b", {}, ` → ${after.predicted.map((one) => cut(plain(one), 24)).join(", ") || "no label"}`)].filter(Boolean);
}
