// Other: a node of a type that is not classified, and where its links lead.
import { nodeOf } from "../address.js";
import { ask, path } from "../api.js";
import { count, h, name, plural, section, some, table } from "../dom.js";
import { relationWords } from "../words.js";
import { chips, rightness } from "./nodes.js";
import { known, rowOf } from "./row.js";

const MOST = 200;

export async function otherView({ run, rest: [type = "", number = ""], signal }) {
  const [node, graph] = await Promise.all([
    ask(path(["runs", run.name, "nodes", type, number], { limit: MOST }), { signal }), ask(path(["runs", run.name, "graph"]), { signal })]);
  const links = node.links.reduce((sum, group) => sum + group.count, 0);
  return {
    title: node.name,
    element: h("div.node", {}, h("h1", {}, name(node.name, "bdi")), h("p.lead", {}, `${node.type} `, node.id !== node.name && name(node.id), ` · ${some(links, "link")}`),
      h("div.stack", {}, rowOf(node), node.links.filter((group) => group.count).map((group) => linked(run, graph, group)))),
  };
}

function linked(run, graph, group) {
  const link = (node) => h("a", { href: nodeOf(run, node.type, node.number) }, name(node.name), node.id !== node.name && h("small", {}, name(node.id)));
  const title = `Linked to ${count(group.count)} ${relationWords(graph, group.relation, group.count === 1 ? undefined : plural)}`;
  const few = group.count > group.nodes.length && `The first ${count(group.nodes.length)}.`;
  return section(title, few, group.type === run.target
    ? table(title, [run.target, "known label", "predicted", "right?"], group.nodes.map((node) => [link(node), node.labels.length ? chips(node.labels, () => "") : h("span.faint", {}, "not known"), chips(node.predicted, () => ""), rightness(node.wrong)]), { hidden: true, cards: true })
    : h("ul.ticks", {}, group.nodes.map((node) => h("li", {}, link(node), known(node)))));
}
