// Nodes: a table of predictions to filter, sort and download.
import { change, to } from "../address.js";
import { ask, path } from "../api.js";
import { count, cut, h, name, percent, plural, table } from "../dom.js";
import { SPLITS } from "../words.js";

const PAGE = 50;
const SHOWS = {
  all: ["All", "Every prediction.", { filter: "all", sort: "" }],
  wrong: ["Wrong", "Where a label is known and the prediction differs. Worst first.", { filter: "wrong", sort: "surprising" }],
  uncertain: ["Uncertain", "Where the model hesitates between labels, most uncertain first. In bits: 0 is certain, 1 is like tossing a coin.", { filter: "all", sort: "uncertain" }],
  surprising: ["Surprising", "Where the known labels surprise the model most: mistakes of the model, or of the data. In bits: 1 is a label it gave one chance in 2, 10 one in 1,000.", { filter: "labelled", sort: "surprising" }],
  unlabelled: ["New", "Where no label is known: here the predictions are new. Most likely first.", { filter: "unlabelled", sort: "probability" }],
  confident: ["New and confident", "No label is known, and the model is sure: each label is at least 80 % likely, or unlikely.", { filter: "confident", sort: "probability" }],
  review: ["New, to review", "No label is known, and the model is not sure. Most uncertain first.", { filter: "review", sort: "uncertain" }],
};

/** Turn the address into the query of the API. */
function wanted(query) {
  const [, , set] = SHOWS[query.get("show")] ?? SHOWS.all;
  const read = (key) => query.get(key) ?? "";
  const sort = read("sort") || set.sort;
  return {
    filter: set.filter, predicted: read("predicted"), true: read("true"), split: read("split"), where: query.getAll("where"), q: read("q"),
    sort, descending: read("down") === "" ? "" : read("down") === "1",
  };
}

export async function nodesView({ run, query, signal, say }) {
  const asked = wanted(query), show = SHOWS[query.get("show")] ? query.get("show") : "all";
  const page = Math.max(1, Math.floor(Number(query.get("page"))) || 1);
  const found = await ask(path(["runs", run.name, "predictions"], { ...asked, offset: PAGE * (page - 1), limit: PAGE }), { signal });
  const nodes = plural(run.target);
  say(`${count(found.total)} ${nodes}`);
  return {
    title: `${SHOWS[show][0]} ${nodes}`,
    element: h("div.nodes", {},
      h("h1", {}, `${nodes.charAt(0).toUpperCase()}${nodes.slice(1)}`),
      h("div.shows", { role: "group", "aria-label": "Show" }, Object.entries(SHOWS).map(([key, [words]]) =>
        h("button", { type: "button", id: `show-${key}`, "aria-pressed": String(key === show), onclick: () => change({ show: key === "all" ? null : key, sort: null, down: null, page: null }) }, words))),
      h("p.lead", {}, SHOWS[show][1]),
      filters(run, asked, found.facets),
      h("div.total", {}, h("p", {}, h("b", {}, count(found.total)), ` ${found.total === 1 ? run.target : nodes}`),
        h("p.downloads", {}, h("a.button.quiet", { href: `api/v1/${path(["runs", run.name, "predictions"], { ...asked, format: "csv" })}`, download: `${run.name}.csv` }, "Download as CSV"), " ",
          h("a", { href: `api/v1/${path(["runs", run.name, "predictions"], { ...asked, offset: PAGE * (page - 1), limit: PAGE, format: "json" })}` }, "JSON"))),
      found.rows.length ? list(run, found.rows, asked) : empty(nodes),
      pages(found.total, page)),
  };
}

/** A menu for each facet, with the number of nodes that each value would leave. */
function filters(run, asked, facets) {
  const menu = ({ key, column, values }, i) => {
    const now = key === "where" ? asked.where.find((one) => one.startsWith(`${column}=`))?.slice(column.length + 1) ?? "" : asked[key];
    const kept = asked.where.filter((one) => !one.startsWith(`${column}=`));
    const pick = (value) => change(key === "where" ? { where: value ? [...kept, `${column}=${value}`] : kept, page: null } : { [key]: value, page: null });
    const words = key === "split" ? (value) => SPLITS[value] : (value) => cut(value, 40);
    const shown = now && !values.some(({ value }) => value === now) ? [...values, { value: now, count: 0 }] : values;
    return h("label", {}, h("span", {}, { predicted: "Predicted", true: "True label", split: "Used for" }[key] ?? cut(column, 40)),
      h("select", { id: key === "where" ? `by-column-${i}` : `by-${key}`, onchange: (event) => pick(event.target.value) },
        h("option", { value: "" }, "any"), shown.map((one) => h("option", { value: one.value, selected: one.value === now }, `${words(one.value)} (${count(one.count)})`))));
  };
  return h("form.filters", { onsubmit: (event) => event.preventDefault(), "aria-label": "Filter" },
    h("label", {}, h("span", {}, "Name or id"), h("input", { id: "by-q", type: "search", value: asked.q, oninput: (event) => change({ q: event.target.value, page: null }, { replace: true, wait: 200 }) })),
    facets.map(menu));
}

const HEADS = [["name", null], ["probability", "predicted"], [null, "true"], [null, "right?"], ["uncertain", "uncertain"], ["surprising", "surprising"], ["degree", "links"]];

function list(run, rows, asked) {
  const key = (i) => HEADS[i][0];
  const sortable = {
    order: (i) => (key(i) && key(i) === asked.sort ? (down(asked) ? "descending" : "ascending") : null),
    head: (title, i) => key(i) && h("button.sort", { type: "button", id: `sort-${key(i)}`, onclick: () => change({ sort: key(i), down: key(i) === asked.sort && down(asked) ? "0" : key(i) === "name" && asked.sort !== "name" ? "0" : "1", page: null }) },
      title, key(i) === asked.sort && h("span", { "aria-hidden": "true" }, down(asked) ? " ↓" : " ↑")),
  };
  return table(`Predictions of ${plural(run.target)}`, HEADS.map(([, title]) => title ?? run.target), rows.map((row) => [
    h("a", { href: to(run.name, "node", [row.node]) }, name(row.name), row.id !== row.name && h("small", {}, name(row.id)), row.split === "train" && h("span.chip.training", {}, "training")),
    predicted(run, row),
    row.labels.length ? chips(row.labels, () => "") : h("span.faint", {}, "not known"),
    rightness(row.wrong),
    row.uncertainty.toFixed(2),
    row.surprise === null ? "–" : row.surprise.toFixed(1),
    count(row.degree),
  ]), { numeric: [4, 5, 6], hidden: true, sortable, cards: true });
}

const down = (asked) => (asked.descending === "" ? ["uncertain", "surprising", "probability"].includes(asked.sort) : asked.descending);

/** The predicted labels with their probabilities inside the marks. */
export function predicted(run, row) {
  const p = (label) => row.probabilities[run.labels.findIndex((one) => one.name === label)];
  if (!row.predicted.length) return h("span.faint", {}, `no label; at most ${percent(Math.max(...row.probabilities))}`);
  return chips(row.predicted, (label) => (row.labels.length ? (row.labels.includes(label) ? "right" : "wrong") : ""), p);
}

/** Say whether a prediction is right, if that is known. */
export const rightness = (wrong) => (wrong === null ? "" : wrong ? h("span.bad", {}, "✗ wrong") : h("span.good", {}, "✓ right"));

/** Labels as small marks, with their probabilities if `p` gives them. */
export function chips(labels, kind, p = null) {
  return labels.length ? h("span.chips", {}, labels.map((label) => h(`span.chip${kind(label) && `.${kind(label)}`}`, {}, name(label), p && h("b", {}, percent(p(label)))))) : h("span.faint", {}, "no label");
}

const empty = (nodes) => h("div.card.empty", {}, h("p", {}, `No ${nodes} fit these filters.`),
  h("button", { type: "button", id: "clear", onclick: () => change({ show: null, predicted: null, true: null, split: null, where: null, q: null, page: null }) }, "Clear all filters"));

/** Buttons from page to page. */
export function pages(total, page, size = PAGE) {
  const last = Math.max(1, Math.ceil(total / size));
  if (last === 1) return null;
  const button = (words, number, id) => h("button", { type: "button", id, disabled: number < 1 || number > last, onclick: () => change({ page: number === 1 ? null : String(number) }) }, words);
  return h("nav.pages", { "aria-label": "Pages" }, button("← Previous", page - 1, "previous"), h("span", {}, `Page ${count(page)} of ${count(last)}`), button("Next →", page + 1, "next"));
}
