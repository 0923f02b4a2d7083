// Compare: where two runs differ, over all nodes and on one.
import { change, go, to } from "../address.js";
import { ask, path } from "../api.js";
import { bars } from "../charts.js";
import { count, figure, h, name, percent, plural, section, some, table } from "../dom.js";
import { comparable } from "../words.js";
import { chips, pages, predicted } from "./nodes.js";
import { says } from "./labels.js";
import { header } from "./node.js";
import { reasons } from "./why.js";

const PAGE = 50;
const FILTERS = { differ: "Different labels", a_right: "Only the first is right", b_right: "Only the second is right", all: "All" };

export async function compareView(context) {
  const { run, runs, rest } = context;
  const other = runs.find((one) => one.name === rest[0]);
  if (!other) throw new Error(rest[0] ? `There is no run ${rest[0]}.` : "Choose a run to compare with: serve two or more runs.");
  return rest[1] === undefined ? all(context, run, other) : one(context, run, other);
}

async function all({ run, runs, query, signal, say }, a, b) {
  const filter = FILTERS[query.get("show")] ? query.get("show") : "differ", page = Math.max(1, Math.floor(Number(query.get("page"))) || 1);
  const [found, first, second] = await Promise.all([
    ask(path(["compare", a.name, b.name], { filter, offset: PAGE * (page - 1), limit: PAGE }), { signal }),
    ask(path(["runs", a.name, "overview"]), { signal }), ask(path(["runs", b.name, "overview"]), { signal }),
  ]);
  const nodes = plural(run.target), others = runs.filter((each) => comparable(a, each));
  say(`${count(found.total)} ${nodes}`);
  return {
    title: `${a.name} and ${b.name}`,
    element: h("div.compare", {},
      h("h1", {}, "Where do they differ?"),
      h("p.lead", {}, h("b", {}, name(a.name)), " against ", others.length > 1 ? h("select", { id: "other", "aria-label": "Compare with", onchange: (event) => go(to(a.name, "compare", [event.target.value])) },
        others.map((each) => h("option", { value: each.name, selected: each === b }, each.name))) : h("b", {}, name(b.name)),
        `: ${some(found.differ, run.target)} of ${count(run.nodes)} get different labels.`),
      h("div.grid", {}, found.nodes > 0 && right(found, a, b, nodes), found.part && scores(a, b, first, second)),
      h("div.shows", { role: "group", "aria-label": "Show" }, Object.entries(FILTERS).map(([key, words]) =>
        h("button", { type: "button", id: `show-${key}`, "aria-pressed": String(key === filter), onclick: () => change({ show: key === "differ" ? null : key, page: null }) }, words.replace("the first", a.name).replace("the second", b.name)))),
      h("p.total", {}, h("b", {}, count(found.total)), ` ${found.total === 1 ? run.target : nodes}, largest difference first`),
      found.rows.length ? table("Predictions of both", [run.target, a.name, b.name, "true", "difference"], found.rows.map(({ a: first, b: second, distance }) => [
        h("a", { href: to(a.name, "compare", [b.name, first.node]) }, name(first.name), first.id !== first.name && h("small", {}, name(first.id))),
        predicted(a, first), predicted(b, second), first.labels.length ? chips(first.labels, () => "") : h("span.faint", {}, "not known"), percent(distance)]), { numeric: [4], hidden: true })
        : h("div.card.empty", {}, h("p", {}, `No ${nodes} here: they agree.`)),
      pages(found.total, page, PAGE)),
  };
}

const share = (value) => (value === undefined ? null : value / 100);

function right(found, a, b, nodes) {
  const rows = [["both right", found.both_right, "model"], [`only ${a.name} right`, found.a_right, "for"], [`only ${b.name} right`, found.b_right, "against"], ["both wrong", found.both_wrong, "plain"]];
  return section("Who is right?", `${count(found.nodes)} ${nodes} with known labels that neither has learnt from.`,
    figure("Who is right", bars(rows.map(([title, n, kind]) => ({ name: title, value: n / found.nodes, kind }))), table("Who is right", ["who", nodes], rows.map(([title, n]) => [title, count(n)]), { numeric: [1] })));
}

function scores(a, b, first, second) {
  const rows = [[a, first], [b, second]].flatMap(([run, found]) => found.scores.filter((each) => each.name === "model").map((each) => ({ run, ...each })));
  const bar = (which) => rows.map((row) => ({ name: row.run.name, value: row[which] / 100, low: share(row.intervals[which]?.[0]), high: share(row.intervals[which]?.[1]), kind: row.run === a ? "for" : "against" }));
  return section("Whose scores are better?", "With 95 % intervals.", figure("Scores of both runs", h("div", {}, h("h3", {}, "Micro F1"), bars(bar("micro")), h("h3", {}, "Macro F1"), bars(bar("macro"))),
    table("Scores of both runs", ["run", "micro F1", "macro F1"], rows.map((row) => [row.run.name, percent(row.micro / 100, 1), percent(row.macro / 100, 1)]), { numeric: [1, 2] })));
}

async function one({ run, runs, rest, query, signal }, a, b) {
  const sides = await Promise.all([a, b].map(async (each) => {
    const prediction = await ask(path(["runs", each.name, "predictions", rest[1]]), { signal });
    const found = each.explains ? await ask(path(["runs", each.name, "explanations", rest[1]], { label: query.get("label") ?? "", instances: 1 }), { signal }) : null;
    return { each, prediction, found };
  }));
  const [first] = sides;
  return {
    title: first.prediction.name,
    element: h("div.node", {}, header(run, runs.filter((each) => each === a || each === b), first.prediction, "compare"),
      h("div.two", {}, sides.map(({ each, prediction, found }) => h("div", {}, h("h2.side", {}, name(each.name)),
        h("p", {}, h("a", { href: to(each.name, "node", [prediction.node]) }, "Open in this run")),
        found && h("p.sentence", {}, found.sentence), says(each, prediction, found && found.label, null), found && reasons(each, prediction, found))))),
  };
}
