// Overview: how good the model is, what it looks at, and where it is weak.
import { to } from "../address.js";
import { ask, path } from "../api.js";
import { bars, lines, matrix, reliability } from "../charts.js";
import { chart, count, figure, h, name, percent, plural, section, some, table } from "../dom.js";

const PARTS = { test: "test", val: "validation", oof: "out-of-fold training" };
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
    found.suspicion.length > 0 && h("p.note", { role: "alert" }, found.suspicion.join(" ")),
    fresh(run, found.new, nodes, list),
    found.part === "" && h("p.note", {}, "No scores: no nodes that nothing was fitted to, or the tables have changed since training."),
    h("div.columns", {},
      found.part && scores(run, found, part, nodes),
      found.reliability.length > 0 && trust(found, part),
      found.confusion.labels.length > 0 && found.part && mistakes(run, found),
      found.by_label.length > 0 && byLabel(run, found, list)),
    found.epochs.length > 0 && h("details.inner", {}, h("summary", {}, "Details of the model"), curves(found)));
}

/** What is new comes first: how many rows without a label there are, and how sure the model is of them. */
function fresh(run, { nodes, confident, review }, noun, list) {
  if (!list({})) return nodes > 0 && h("p.fresh", {}, `${count(nodes)} new: ${count(confident)} confident, ${count(review)} to review`);
  const link = (words, show) => h("a", { href: list({ show }) }, words);
  return h("section.card.fresh", { "aria-label": "New predictions" },
    nodes > 0 ? [h("h2", {}, `${count(nodes)} new: `, link(`${count(confident)} confident`, "confident"), ", ", link(`${count(review)} to review`, "review")),
      h("p.about", {}, `No label is known for ${nodes === 1 ? `one ${run.target}` : `these ${noun}`}. Confident: every label is at least 80 % likely, or unlikely.`)]
      : h("h2", {}, `Every one of the ${noun} has a label.`),
    h("p.actions", {}, h("a.button", { href: to(run.name, "review") }, "Review"), nodes > 0 && h("a.button.quiet", { href: list({ show: "unlabelled" }) }, "New predictions"),
      h("a.button.quiet", { href: list({ show: "surprising" }) }, "Labels that look wrong"), h("a.button.quiet", { href: list({}) }, `All ${noun}`)));
}

function scores(run, found, part, nodes) {
  const rows = (which) => found.scores.map((one) => ({
    name: WHO[one.name] ?? one.name, value: share(one[which]), kind: one.name === "model" ? "model" : "plain", note: which === "micro" && one.correct !== undefined ? `${one.correct} of ${found.nodes}` : "",
    low: share(one.intervals[which]?.[0]), high: share(one.intervals[which]?.[1]),
  }));
  const interval = (row) => (row.low === null ? "–" : `${percent(row.low, 1)} to ${percent(row.high, 1)}`);
  const digits = (value, size = 2) => (value === null || value === undefined ? "–" : value.toFixed(size));
  const first = run.multilabel ? "micro F1" : "correct", title = run.multilabel ? "Micro F1: every label counts alike" : `Correct ${nodes}`;
  const numbers = table("Scores", ["who", first, "95 % interval", "macro F1", "95 % interval", "log loss", "ROC AUC", "average precision"],
    rows("micro").map((row, i) => [row.name, `${row.note ? `${row.note}, ` : ""}${percent(row.value, 1)}`, interval(row), percent(rows("macro")[i].value, 1), interval(rows("macro")[i]),
      ...["log_loss", "roc_auc", "average_precision"].map((key) => digits(i ? found.scores[i][key] : found[key], 3))]), { numeric: [1, 2, 3, 4, 5, 6, 7] });
  const rare = found.by_label.filter((row) => row.rare).length;
  return section("How good is it?", [verdict(found, nodes), ` Measured on ${count(found.nodes)} ${part} ${nodes} that the model has not learnt from.`],
    chart(found.nodes, "Scores of the model and of what it has to beat", () => h("div", {},
      h("h3", {}, title), bars(rows("micro")),
      h("h3", {}, "Macro F1: rare labels count as much as common ones"), bars(rows("macro"))), numbers,
    found.scores.some((one) => one.intervals.micro) && "Whiskers: 95 % intervals. Where they overlap widely, the difference may be chance."),
    h("dl.facts", {}, [["Log loss", digits(found.log_loss, 3), "0 is perfect"], ["ROC AUC", digits(found.roc_auc), "1 is perfect, 0.5 is chance"], ["Average precision", digits(found.average_precision), "1 is perfect"]]
      .map(([term, value, hint]) => h("div", {}, h("dt", {}, term), h("dd", {}, h("b", {}, value), h("small", {}, hint))))),
    rare > 0 && h("p.hint", {}, `${some(rare, "label")} with fewer than 10 ${part} ${nodes}: macro F1 depends on a few of them.`));
}

const listed = (names) => names.flatMap((one, i) => [i ? (i === names.length - 1 ? " and " : ", ") : "", name(one)]);

/** Say in a sentence how good the model is, and what that compares with. */
function verdict(found, nodes) {
  const by = Object.fromEntries(found.scores.map((one) => [one.name, one]));
  if (!by.model) return "";
  const { correct, micro, intervals } = by.model;
  const own = correct === undefined ? `Micro F1 is ${micro.toFixed(0)} %` : `${count(correct)} of ${count(found.nodes)} ${nodes} are correct (${micro.toFixed(0)} %)`;
  const between = intervals.micro ? `, 95 % interval ${intervals.micro[0].toFixed(0)} to ${intervals.micro[1].toFixed(0)} %` : "";
  if (!by.majority) return `${own}${between}.`;
  if (micro <= by.majority.micro) return `${own}${between}: no better than always predicting the most common label.`;
  return `${own}${between}. Always predicting the most common label gives ${by.majority.micro.toFixed(0)} %.`;
}

function trust(found, part) {
  const bins = found.reliability;
  const numbers = table("Probabilities against what was true", ["the model says", "it was true", "predictions"],
    bins.map(([n, said, seen]) => [percent(said), percent(seen), count(n)]), { numeric: [1, 2] });
  return section("Can its probabilities be trusted?", `On the dashed line, of all things it calls 70 % likely, 70 % are true. Dots below the line: too sure. Above: not sure enough.`,
    chart(found.nodes, "Reliability diagram", () => reliability(bins), numbers,
      found.calibration_error === null ? null : `On average it is off by ${percent(found.calibration_error, 1)} (calibration error); Brier score ${found.brier.toFixed(3)}. ${part === "test" ? "" : `Measured on ${part} nodes.`}`));
}

function mistakes(run, found) {
  const { labels, counts } = found.confusion;
  const numbers = table("True label by predicted label", ["true / predicted", ...labels.map((label) => name(label))], labels.map((label, i) => [name(label), ...counts[i].map(count)]), { numeric: labels.map((_, i) => i + 1) });
  const worst = counts.flatMap((row, i) => row.map((n, j) => ({ n, i, j }))).filter(({ i, j }) => i !== j).sort((a, b) => b.n - a.n)[0];
  const words = worst?.n ? ["Most often it takes ", h("b", {}, name(labels[worst.i])), " for ", h("b", {}, name(labels[worst.j])), ` (${worst.n === 1 ? "once" : `${count(worst.n)} times`}). `] : ["No mistakes. "];
  return section("What does it mistake for what?", words,
    chart(found.nodes, "Confusion matrix", () => h("div.scroll.shown", { tabindex: 0 }, matrix(labels, counts)), numbers,
      run.multilabel ? "Rows: a label that is true; columns: a label that was predicted. Blue: found. Orange: the true label was missed and the other one predicted wrongly."
        : "Rows: the true label; columns: the label that was predicted. Blue: right. Orange: wrong."));
}

function byLabel(run, found, list) {
  const rows = [...found.by_label].sort((a, b) => a.f1 - b.f1).slice(0, 15);
  const link = (label) => (list({}) ? h("a", { href: list({ true: label, show: "wrong" }) }, name(label)) : name(label));
  const thresholds = Object.fromEntries(run.labels.map((label) => [label.name, label.threshold]));
  const few = (row) => row.rare && h("span.chip.few", { title: "Fewer than 10 rows: the score is uncertain" }, "few");
  const of = (hits, all) => `${count(hits)} of ${count(all)}${all ? ` (${percent(hits / all)})` : ""}`;
  const numbers = table("Scores by label", ["label", "right of those predicted", "found of those there are", "F1", "predicted from"],
    rows.map((row) => [[link(row.label), few(row)], of(row.hits, row.predicted), of(row.hits, row.nodes), percent(row.f1), thresholds[row.label] ? percent(thresholds[row.label]) : "likeliest"]), { numeric: [1, 2, 3, 4] });
  return section("Which labels is it weak at?", "F1 by label, weakest first: it is 100 % where all rows with the label are found, and it is predicted for nothing else.",
    chart(found.nodes, "F1 by label", () => bars(rows.map((row) => ({ name: row.label, value: row.f1, kind: "model", note: `${row.hits} of ${row.nodes}${row.rare ? ", few" : ""}` }))), numbers, "Beside the bars: how many of the rows with this label are found."),
    list({}) && h("p.hint", {}, "See its mistakes: ", rows.slice(0, 3).map((row, i) => [i > 0 && ", ", link(row.label)]), "."));
}

function curves(found) {
  const line = (key, title, kind) => ({ name: title, kind, points: found.epochs.filter((row) => Number.isFinite(row[key])).map((row) => [row.epoch, row[key]]) });
  const series = [line("train_micro", "training", "plain"), line("val_micro", "validation", "model")].filter((one) => one.points.length);
  if (series.length === 0) return null;
  return section("How did it learn?", [h("span.key.plain", {}, "training"), " ", h("span.key.model", {}, "validation"), " Micro F1 of the attention part by epoch, before it is joined with the linear part."],
    figure("Micro F1 by epoch", lines(series, { marked: found.best_epoch || null }), table("Micro F1 by epoch", ["epoch", "training", "validation"],
      found.epochs.map((row) => [count(row.epoch), percent(row.train_micro, 1), percent(row.val_micro, 1)]), { numeric: [1, 2] })));
}
