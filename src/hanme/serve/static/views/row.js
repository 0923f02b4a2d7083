// The row of a node: its columns as they are in the table, and its links with the labels that are known there.
import { nodeOf } from "../address.js";
import { amount, count, h, name, plural, section, some } from "../dom.js";
import { relationWords } from "../words.js";
import { chips } from "./nodes.js";

const LONG = 400, MOST = 8;

/** The cells of a node's row; nothing where its graph was not made from tables. */
export function rowOf(node) {
  if (!node.columns.length) return null;
  const cell = ({ value, kind, unit }) => (value === null ? h("span.faint", {}, "empty") : value.length > LONG ? h("details", {}, h("summary", {}, `${value.slice(0, LONG)} …`), value)
    : h("bdi", { title: amount(value) === value ? null : value }, kind === "number" ? amount(value) : value, unit && ` ${unit}`));
  const unread = node.columns.some((one) => one.kind === null) ? " Columns in grey are not read by the model." : "";
  return section("Its row", `All columns of its table.${unread}`,
    h("dl.cells", {}, node.columns.map((one) => h(one.kind ? "div" : "div.unread", {}, h("dt", { title: one.column }, name(one.title)), h("dd", {}, cell(one))))));
}

/** The links of a node by relation, each with the labels that are known at its other end. */
export function linksTo(run, graph, node) {
  const groups = node.links.filter((group) => group.count);
  if (!groups.length) return null;
  return section("Its links", `With all known labels: of ${plural(run.target)} themselves, or of the other ${plural(run.target)} of what is linked. Reasons do not count those of the test.`, groups.map((group) => {
    const item = (other) => h("li", {}, h("span", {}, h("a", { href: nodeOf(run, other.type, other.number) }, name(other.name))), known(other));
    const [first, rest] = [group.nodes.slice(0, MOST), group.nodes.slice(MOST)];
    return [h("h3", {}, relationWords(graph, group.relation, group.count === 1 ? undefined : plural), ` (${count(group.count)})`),
      h("ul.ticks", {}, first.map(item)),
      rest.length > 0 && h("details.more", {}, h("summary", {}, `${some(rest.length, "more link")}${group.count > group.nodes.length ? ` of ${count(group.count - MOST)}` : ""}`), h("ul.ticks", {}, rest.map(item)))];
  }));
}

/** The known labels at the other end of a link: those of a classified node, or counts over the others it links to. */
export function known(other) {
  if (other.labels !== null) return other.labels.length ? chips(other.labels, () => "") : h("span.faint", {}, "not known");
  const counts = Object.entries(other.known);
  return h("span.chips", {}, counts.slice(0, 4).map(([label, n]) => h("span.chip", {}, h("b", {}, count(n)), name(label))), counts.length > 4 && h("span.faint", {}, "…"));
}
