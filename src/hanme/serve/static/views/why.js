// Why: a sentence, the reasons as a waterfall from the base rate to the prediction, and the model's own numbers for those who want them.
import { nodeOf, to } from "../address.js";
import { fromTo } from "../charts.js";
import { count, h, name, percent, plain, plural, signed, some, table } from "../dom.js";
import { instanceGraph, keyOf } from "../graph.js";
import { blockWords, grouped, metapathWords, namesOf } from "../words.js";
import { says } from "./labels.js";

const SHOWN = 8;
const fine = (p) => percent(p, p > 0.995 || p < 0.005 ? 1 : 0);

/** Explain one node: the sentence, its labels, the reasons, and the details; `report` gives the address of a node in a report, `expanded` is a node in the picture of a metapath. */
export function why(run, prediction, found, report = null, expanded = null) {
  return [h("p.sentence", {}, found.sentence),
    h("div.grid.uneven", {}, says(run, prediction, found.label, report), reasons(run, prediction, found, report)),
    details(run, found, report, expanded)];
}

/** The reasons, each with its evidence, the step it takes, and how likely the label would be without it. */
export function reasons(run, prediction, found, report = null) {
  const href = report ?? ((type, number) => nodeOf(run, type, number));
  const shown = found.reasons.slice(0, SHOWN), rest = found.reasons.slice(SHOWN);
  const rows = shown.map((one, i) => ({ ...one, before: i ? shown[i - 1].step : found.start }));
  if (rest.length) rows.push({ text: some(rest.length, "smaller reason"), evidence: "", before: shown.at(-1).step, step: rest.at(-1).step, without: null, node: null });
  const what = (one) => {
    const address = one.node && href(one.node.type, one.node.number);
    return h("span.what", {}, address ? h("a", { href: address }, name(one.text)) : name(one.text), one.evidence && h("small", {}, one.evidence));
  };
  const start = h("li", {}, h("span.what", {}, "start", h("small", {}, `the same for all; ${fine(found.base_rate)} of the known ${plural(run.target)} are ${plain(found.label)}`)), fromTo(0, found.start, "plain"), h("span.value", {}, fine(found.start)), h("span.effect"));
  const items = rows.map((one) => h("li", {}, what(one), fromTo(one.before, one.step, one.step < one.before ? "against" : "for"),
    h("span.value", {}, h("span.unseen", {}, one.step < one.before ? "lowers to " : "raises to "), fine(one.step)),
    h("span.effect", {}, one.without !== null && h(`span.${one.without < found.probability - 0.005 ? "lower" : one.without > found.probability + 0.005 ? "raise" : "faint"}`, {}, `without it ${one.estimated ? "about " : ""}${fine(one.without)}`))));
  const end = h("li.end", {}, h("span.what", {}, h("b", {}, name(found.label))), fromTo(0, found.probability, "model"), h("span.value", {}, h("b", {}, fine(found.probability))), h("span.effect"));
  return h("section.card", {}, h("h2", {}, "Why ", name(found.label, "bdi"), "?"),
    h("p.about", {}, h("span.key.for", {}, "Blue"), " reasons make it likelier, ", h("span.key.against", {}, "orange"), " ones less likely, one after the other."),
    h("ol.waterfall", {}, start, items, end),
    !report && h("p.actions", {}, h("a.button", { href: to(run.name, "what-if", [prediction.node], { label: found.label }) }, "What would change it?")));
}

/** How the model computes it: the parts of its score, and the paths it attends to. */
function details(run, found, report, expanded) {
  const { logit, metapaths, instances, others } = found.details;
  const parts = [...metapaths.map((one) => ({ name: `paths: ${metapathWords(one.metapath)}`, value: one.part })), ...grouped(Object.entries(others).map(([name, value]) => ({ name, value })), blockWords)]
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const sums = (caption, heads, rows) => table(caption, heads, rows, { numeric: heads.map((_, i) => i).slice(1) });
  return h("details.inner", { id: "details", open: expanded !== null }, h("summary", {}, "Details of the model"),
    h("div.stack", {},
      h("section.card", {}, h("h2", {}, "What adds up to the score"), h("p.about", {}, `The score of ${plain(found.label)} (its logit) is ${signed(logit, 3)}: the sum of the reasons, or of the parts of the model.`),
        h("div.two", {}, sums("By reason", ["reason", "adds"], [...found.reasons.map((one) => [one.text, signed(one.contribution, 4)]), ["start", signed(found.base, 4)]]),
          sums("By part of the model", ["part", "adds"], parts.map((one) => [one.name, signed(one.value, 4)])))),
      metapaths.filter((one) => one.instances > 0).map((one) => along(run, found, one, instances.filter((each) => each.metapath === one.metapath), report, expanded))));
}

/** The picture of the paths along a metapath, and a list beside it. */
function along(run, found, metapath, own, report, expanded) {
  const href = report ?? ((type, number) => nodeOf(run, type, number));
  const title = metapathWords(metapath.metapath), score = `the score of ${plain(found.label)}`;
  if (!own.length) return h("p.hint", {}, `${title}: none of ${some(metapath.instances, "path")} is among the first.`);
  const items = new Map(own.map((one) => [keyOf(one), h("tr", {}, ...cells(one, href))]));
  const light = (keys) => items.forEach((row, key) => row.classList.toggle("lit", keys?.includes(key) ?? false));
  return h("section.card", {}, h("h2", {}, `Paths: ${title}`), h("p.about", {}, `${some(metapath.instances, "path")} with ${percent(metapath.weight)} of the attention; together they add ${signed(metapath.part)}.`),
    h("div.beside", {}, instanceGraph(own, score, { href, onpick: light, expands: !report, expanded: expanded?.metapath === metapath.metapath ? expanded.node : null }),
      h("div.scroll.list", { tabindex: 0, role: "group", "aria-label": `Paths along ${metapath.metapath} as a list` }, h("table", {}, h("caption.unseen", {}, `Paths along ${metapath.metapath}`),
        h("thead", {}, h("tr", {}, ["path", "attention", "adds", "without it"].map((head, i) => h(i ? "th.number" : "th", { scope: "col" }, head)))), h("tbody", {}, [...items.values()])))),
    own.length < metapath.instances && h("p.hint", {}, `The first ${count(own.length)} of ${count(metapath.instances)}.`));
}

function cells(one, href) {
  const ways = namesOf(one).map((title, i) => {
    const { type, number } = one.nodes[i + 1], address = title === "itself" ? null : href(type, number);
    return [i > 0 && " → ", address ? h("a", { href: address }, name(title)) : name(title)];
  });
  return [h("th", { scope: "row" }, ways), h("td.number", {}, percent(one.attention, 1)), h("td.number", {}, signed(one.part, 3)), h("td.number", {}, signed(-one.move, 3))];
}
