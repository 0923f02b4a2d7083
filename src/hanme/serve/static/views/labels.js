// The labels of a node with their probabilities.
import { change } from "../address.js";
import { h, meter, name, percent, section, some } from "../dom.js";
import { chips } from "./nodes.js";

const MANY = 12;

/** The labels with their probabilities, likeliest first. */
const ranked = (run, prediction) => run.labels.map((label, i) => ({ ...label, p: prediction.probabilities[i] })).sort((a, b) => b.p - a.p);

/** The labels with their probabilities; a click asks why. */
export function says(run, prediction, asked, report) {
  const order = ranked(run, prediction);
  const shown = order.filter((label, i) => i < MANY || label.name === asked || prediction.predicted.includes(label.name) || prediction.labels.includes(label.name));
  const rows = shown.map((label) => {
    const bar = meter("span.meter", [["span.fill", label.p], label.threshold !== null && ["span.threshold", label.threshold]]);
    const predicted = prediction.predicted.includes(label.name), there = prediction.labels.includes(label.name);
    const inside = [h("span.label", {}, name(label.name)), bar, h("span.value", {}, percent(label.p, label.p > 0.995 || label.p < 0.005 ? 1 : 0)),
      h("span.marks", {}, predicted && h("span.chip", {}, "predicted"), there && h("span.chip.true", {}, "true"))];
    return h("li", {}, asked === null || report ? h("span.row", {}, inside)
      : h("button.row", { type: "button", id: `why-${order.indexOf(label)}`, "aria-pressed": String(label.name === asked), onclick: () => change({ label: label.name }) }, h("span.unseen", {}, "Why "), inside));
  });
  const rule = run.multilabel ? "A label is predicted where its bar passes the mark." : run.labels.some((one) => one.threshold !== null) ? "The label whose bar passes its mark is predicted." : "The likeliest label is predicted.";
  return section("What the model says", [rule, asked !== null && !report && " Choose a label to ask why."], h("ul.meters", {}, rows), shown.length < order.length && h("p.hint", {}, `${some(order.length - shown.length, "less likely label")} not shown.`), verdict(prediction));
}

function verdict(prediction) {
  if (!prediction.labels.length) return h("p.hint", {}, "The true label is not known.");
  return prediction.wrong ? h("p.bad", {}, "✗ This is wrong. True: ", chips(prediction.labels, () => "")) : h("p.good", {}, "✓ This is right.");
}
