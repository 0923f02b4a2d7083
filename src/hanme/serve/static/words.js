// Metapaths and blocks in words.
import { a, plural } from "./dom.js";

/** Split "film-directed_by:person-directed:film" into [{type, relation}, ...]. */
function steps(metapath) {
  return metapath.split("-").map((step) => {
    const [relation, type] = step.includes(":") ? step.split(":") : ["", step];
    return { type, relation };
  });
}

const through = (step) => (step.relation ? `${step.type} (${step.relation})` : step.type);
const all = (step) => (step.relation ? `${plural(step.type)} (${step.relation})` : plural(step.type));

/** Say what a relation of a graph leads to: "person (directed_by)", or "actor" where there is but one; "persons" where `noun` is plural. */
export function relationWords(graph, relation, noun = (type) => type) {
  const own = graph.relations.find((one) => one.relation === relation);
  if (!own) return relation;
  const twins = graph.relations.filter((one) => one.source === own.source && one.target === own.target);
  return twins.length === 1 ? noun(own.target) : `${noun(own.target)} (${relation.slice(own.source.length + 1, -own.target.length - 1)})`;
}

/** Say where a metapath leads: "films that share a person (directed_by)". */
export function metapathWords(metapath) {
  const [root, ...others] = steps(metapath), end = others.pop();
  if (!end) return root.type;
  if (!others.length) return all(end);
  if (others.length === 1 && end.type === root.type) return `${plural(end.type)} that share ${a(through(others[0]))}`;
  return `${plural(end.type)} via ${others.map(through).join(" → ")}`;
}

/** Say what a block of the linear part reads: "its own features", "which persons (played_by) it has". */
export function blockWords(block) {
  const found = /^(?:(.*):)?(features|ids|predictions)(?::(?:plain|unit))?$/.exec(block);
  if (!found) return block === "bias" ? START : block === "trees" ? "its own features together" : block;
  const [, path, read] = found;
  if (!path) return "its own features";
  if (read === "ids") return `which ${metapathWords(path)} it has`;
  if (read === "predictions") return `labels and predictions of ${metapathWords(path)}`;
  return `features of ${steps(path).length === 2 ? "its " : ""}${metapathWords(path)}`;
}

/** Add up what has the same words: [{name, value}], largest first. */
export function grouped(parts, words) {
  const sums = new Map();
  for (const { name, value } of parts) sums.set(words(name), (sums.get(words(name)) ?? 0) + value);
  return [...sums].map(([name, value]) => ({ name, value })).sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
}

/** Name the nodes of an instance after its root; the root, met again, is "itself". */
export function namesOf({ nodes: [root, ...others] }) {
  return others.map((node) => (node.type === root.type && node.number === root.number ? "itself" : node.name));
}

/** Whether two runs answer the same question: the same nodes and the same labels. */
export const comparable = (a, b) => a !== b && a.target === b.target && a.nodes === b.nodes && JSON.stringify(a.labels.map((one) => one.name)) === JSON.stringify(b.labels.map((one) => one.name));

const START = "start value, the same for all";
export const SPLITS = {
  train: "used for training", val: "used for validation", test: "kept for testing", unused: "labelled, not used", unlabelled: "no label known",
};
