// Metapaths and blocks in words.
import { plural } from "./dom.js";

/** Split "film-directed_by:person-directed:film" into [{type, relation}, ...]. */
export function steps(metapath) {
  return metapath.split("-").map((step) => {
    const [relation, type] = step.includes(":") ? step.split(":") : ["", step];
    return { type, relation };
  });
}

const through = (step) => (step.relation ? `${step.type} (${step.relation})` : step.type);

/** Say where a metapath leads: "films via person (directed_by)". */
export function metapathWords(metapath) {
  const [root, ...others] = steps(metapath);
  const end = others.pop();
  if (!end) return root.type;
  return others.length ? `${plural(end.type)} via ${others.map(through).join(" → ")}` : `${plural(end.type)}${end.relation ? ` (${end.relation})` : ""}`;
}

/** Say what a block of the linear part reads: "its features", "which person (played_by)". */
export function blockWords(block) {
  const found = /^(?:(.*):)?(features|ids):(?:plain|unit)$/.exec(block);
  if (!found) return block === "bias" ? "start value (bias)" : block;
  const [, path, read] = found;
  if (!path) return read === "ids" ? "which one it is" : "its own features";
  if (read === "features") return `features of its ${metapathWords(path)}`;
  const ways = steps(path);
  return ways.length === 2 ? `which ${through(ways[1])}` : `which ${metapathWords(path)}`;
}

/** Add up what has the same words: [{name, value}], largest first. */
export function grouped(parts, words) {
  const sums = new Map();
  for (const { name, value } of parts) sums.set(words(name), (sums.get(words(name)) ?? 0) + value);
  return [...sums].map(([name, value]) => ({ name, value })).sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
}

export const SPLITS = {
  train: "used for training", val: "used for validation", test: "kept for testing", unused: "labelled, not used", unlabelled: "no label known",
};
