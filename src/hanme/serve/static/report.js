// The report: the same views, drawn once from data that the file holds itself.
import { h, name, nouns } from "./dom.js";
import { overview } from "./views/overview.js";
import { says } from "./views/labels.js";
import { about } from "./views/node.js";
import { why } from "./views/why.js";

const data = JSON.parse(document.getElementById("data").textContent);
for (const [type, words] of Object.entries(data.run.nouns)) nouns.set(type, words);
const held = new Set(data.nodes.map(({ prediction }) => prediction.node));
const link = (type, number) => (type === data.run.target && held.has(number) ? `#node-${number}` : null);

const contents = data.nodes.length > 0 && h("nav.contents", { "aria-label": "Nodes in this report" }, h("ul", {}, data.nodes.map(({ prediction }) =>
  h("li", {}, h("a", { href: `#node-${prediction.node}` }, name(prediction.name))))));

const nodes = data.nodes.map(({ prediction, explanation }) => h("article", { id: `node-${prediction.node}` }, about(data.run, prediction),
  explanation ? why(data.run, prediction, explanation, link) : [says(data.run, prediction, null, link), h("p.note", {}, data.run.why_not)]));

document.getElementById("main").replaceChildren(
  ...[overview(data.run, data.overview, () => null), contents, ...nodes, h("p.hint", {}, `Made by hanme ${data.version}.`)].filter(Boolean));
