// Overview: how good the model is, what it looks at, and where it is weak.
import { to } from "../address.js";
import { ask, path } from "../api.js";
import { bars, lines, matrix, reliability } from "../charts.js";
import { count, figure, h, name, percent, plural, section, some, table } from "../dom.js";
import { blockWords, grouped, metapathWords } from "../words.js";

const PARTS = { test: "test", val: "validation" };
const WHO = { model: "this model", linear: "its linear part", majority: "always the most common label" };
const share = (value) => (value === null || value === undefined ? null : value / 100);

export async function overviewView({ run, signal }) {
  const found = await ask(path(["runs", run.name, "overview"]), { signal });
  return { title: "Overview", element: overview(run, found, (query) => to(run.name, "nodes", [], query)) };
}

/** Show a run; `list` gives the address of a list of nodes, or null where there is none. */
export function overview(run, found, list) {
  const nodes = plural(run.target), part = PARTS[found.part];
  return h("div.overview", {},
    h("h1", {}, h("bdi", {}, run.name)),
    h("p.lead", {}, `A ${run.model} model that gives ${count(run.nodes)} ${nodes} `, run.multilabel ? "any number of" : "one of", ` ${some(run.labels.length, "label")}`, run.labels.length <= 8 ? [": ", listed(run.labels.map((label) => label.name)), "."] : "."),
    list({}) && h("p.actions", {}, h("a.button", { href: list({ show: "surprising" }) }, "What to check first"), h("a.button.quiet", { href: list({}) }, `All ${nodes}`)),
    found.part === "" && h("p.note", {}, "No scores: no test or validation nodes, or the tables have changed since training."),
    h("div.columns", {},
      found.part && scores(found, part, nodes),
      found.reliability.length > 0 && trust(found, part),
      found.confusion.labels.length > 0 && found.part && mistakes(run, found),
      found.by_label.length > 0 && byLabel(run, found, list),
      found.by_degree.length > 0 && byDegree(found, nodes),
      looks(found),
      found.epochs.length > 0 && curves(found)));
}

function scores(found, part, nodes) {
  const rows = (which) => found.scores.map((one) => ({
    name: WHO[one.name] ?? one.name, value: share(one[which]), kind: one.name === "model" ? "model" : "plain",
    low: share(one.intervals[which]?.[0]), high: share(one.intervals[which]?.[1]),
  }));
  const interval = (row) => (row.low === null ? "–" : `${percent(row.low, 1)} to ${percent(row.high, 1)}`);
  const numbers = table("Scores", ["who", "micro F1", "95 % interval", "macro F1", "95 % interval"],
    rows("micro").map((row, i) => [row.name, percent(row.value, 1), interval(row), percent(rows("macro")[i].value, 1), interval(rows("macro")[i])]), { numeric: [1, 2, 3, 4] });
  return section("How good is it?", [verdict(found), ` Measured on ${count(found.nodes)} ${part} ${nodes} that the model has not learnt from.`],
    figure("Scores of the model and of what it has to beat", h("div", {},
      h("h3", {}, "Micro F1: every label counts alike"), bars(rows("micro")),
      h("h3", {}, "Macro F1: rare labels count as much as common ones"), bars(rows("macro"))), numbers,
    found.scores.some((one) => one.intervals.micro) && "Whiskers: 95 % intervals. Where they overlap widely, the difference may be chance."));
}

const listed = (names) => names.flatMap((one, i) => [i ? (i === names.length - 1 ? " and " : ", ") : "", name(one)]);

/** Say in a sentence whether the model beats its baselines. */
function verdict(found) {
  const by = Object.fromEntries(found.scores.map((one) => [one.name, one]));
  if (!by.model || !by.majority) return "";
  if (by.model.micro <= by.majority.micro) return "No better than always predicting the most common label.";
  if (!by.linear) return `It gets ${by.model.micro.toFixed(0)} %, against ${by.majority.micro.toFixed(0)} % for always predicting the most common label.`;
  const gain = by.model.micro - by.linear.micro;
  const over = Math.abs(gain) < 1 ? "about as good as its linear part alone" : gain > 0 ? `${gain.toFixed(1)} points better than its linear part alone` : `${(-gain).toFixed(1)} points worse than its linear part alone`;
  return `It gets ${by.model.micro.toFixed(0)} %, against ${by.majority.micro.toFixed(0)} % for always predicting the most common label, and is ${over}.`;
}

function trust(found, part) {
  const bins = found.reliability;
  const numbers = table("Probabilities against what was true", ["the model says", "it was true", "predictions"],
    bins.map(([n, said, seen]) => [percent(said), percent(seen), count(n)]), { numeric: [1, 2] });
  return section("Can its probabilities be trusted?", `On the dashed line, of all things it calls 70 % likely, 70 % are true. Dots below the line: too sure. Above: not sure enough.`,
    figure("Reliability diagram", reliability(bins), numbers,
      found.calibration_error === null ? null : `On average it is off by ${percent(found.calibration_error, 1)} (calibration error); Brier score ${found.brier.toFixed(3)}. ${part === "validation" ? "Measured on validation nodes." : ""}`));
}

function mistakes(run, found) {
  const { labels, counts } = found.confusion;
  const numbers = table("True label by given label", ["has / was given", ...labels.map((label) => name(label))], labels.map((label, i) => [name(label), ...counts[i].map(count)]), { numeric: labels.map((_, i) => i + 1) });
  const worst = counts.flatMap((row, i) => row.map((n, j) => ({ n, i, j }))).filter(({ i, j }) => i !== j).sort((a, b) => b.n - a.n)[0];
  const words = worst?.n ? ["Most often it takes ", h("b", {}, name(labels[worst.i])), " for ", h("b", {}, name(labels[worst.j])), ` (${worst.n === 1 ? "once" : `${count(worst.n)} times`}). `] : ["No mistakes. "];
  return section("What does it mistake for what?", words,
    figure("Confusion matrix", h("div.scroll", { tabindex: 0 }, matrix(labels, counts)), numbers,
      run.multilabel ? "Rows: a label that is true; columns: a label that was given. Blue: found. Orange: the true label was missed and the other one given wrongly."
        : "Rows: the true label; columns: the label that was given. Blue: right. Orange: wrong."));
}

function byLabel(run, found, list) {
  const rows = [...found.by_label].sort((a, b) => a.f1 - b.f1).slice(0, 15);
  const link = (label) => (list({}) ? h("a", { href: list({ given: label, show: "wrong" }) }, name(label)) : name(label));
  const thresholds = Object.fromEntries(run.labels.map((label) => [label.name, label.threshold]));
  const numbers = table("Scores by label", ["label", "have it", "given", "precision", "recall", "F1", "given from"],
    rows.map((row) => [link(row.label), count(row.nodes), count(row.given), percent(row.precision), percent(row.recall), percent(row.f1), thresholds[row.label] ? percent(thresholds[row.label]) : "likeliest"]), { numeric: [1, 2, 3, 4, 5, 6] });
  return section("Which labels is it weak at?", "F1 by label, weakest first. Precision: how many of those given are right. Recall: how many of those there are found.",
    figure("F1 by label", bars(rows.map((row) => ({ name: row.label, value: row.f1, kind: "model" }))), numbers),
    list({}) && h("p.hint", {}, "See its mistakes: ", rows.slice(0, 3).map((row, i) => [i > 0 && ", ", link(row.label)]), "."));
}

function byDegree(found, nodes) {
  const rows = found.by_degree.map((row) => ({ name: row.least === row.most ? `${row.least} links` : `${row.least} to ${row.most} links`, value: share(row.micro), kind: "model", nodes: row.nodes }));
  return section("Does it need many links?", `Micro F1 of ${nodes} with few and with many links.`,
    figure("Micro F1 by number of links", bars(rows), table("Micro F1 by number of links", ["links", "micro F1", nodes], rows.map((row) => [row.name, percent(row.value, 1), count(row.nodes)]), { numeric: [1, 2] })));
}

function looks(found) {
  const parts = grouped(Object.entries(found.parts).filter(([name]) => name !== "bias").map(([name, value]) => ({ name, value })),
    (text) => (text === "metapaths" ? "paths (attention)" : blockWords(text))).slice(0, 12);
  const most = Math.max(...parts.map((part) => part.value), 1e-9);
  const ways = found.metapaths.map((one) => [metapathWords(one.metapath), percent(one.weight), count(one.instances), count(one.roots)]);
  return section("What does it look at?", "How far each part of the model moves a score, on average. “Paths” is the attention over metapath instances; the others belong to the linear part.",
    parts.length > 0 && figure("How much each part counts", bars(parts.map((part) => ({ ...part, kind: "model" })), { most, format: (v) => v.toFixed(2) }),
      table("How much each part counts", ["part", "mean size"], parts.map((part) => [part.name, part.value.toFixed(3)]), { numeric: [1] })),
    ways.length > 0 && h("h3", {}, "Paths it attends to"),
    ways.length > 0 && table("Metapaths", ["leads to", "weight β", "paths", "starting at"], ways, { numeric: [1, 2, 3], hidden: true }));
}

function curves(found) {
  const line = (key, title, kind) => ({ name: title, kind, points: found.epochs.filter((row) => Number.isFinite(row[key])).map((row) => [row.epoch, row[key]]) });
  const series = [line("train_micro", "training", "plain"), line("val_micro", "validation", "model")].filter((one) => one.points.length);
  if (series.length === 0) return null;
  return section("How did it learn?", [h("span.key.plain", {}, "training"), " ", h("span.key.model", {}, "validation"), " Micro F1 of the attention part by epoch, before it is joined with the linear part."],
    figure("Micro F1 by epoch", lines(series, { marked: found.best_epoch || null }), table("Micro F1 by epoch", ["epoch", "training", "validation"],
      found.epochs.map((row) => [count(row.epoch), percent(row.train_micro, 1), percent(row.val_micro, 1)]), { numeric: [1, 2] })));
}
