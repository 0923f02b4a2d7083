// Review: one prediction after the other, most informative first, by keyboard.
import { to } from "../address.js";
import { ask, askAnew, path } from "../api.js";
import { a, count, cut, h, name, percent, plain, plural, section, some } from "../dom.js";
import { rowOf } from "./row.js";
import { predicted } from "./nodes.js";

const MANY = 30;

export async function reviewView({ run, signal, say }) {
  const state = await askAnew(path(["runs", run.name, "reviews"], { limit: 1 }), { signal });
  const holder = h("div.review", {});
  let keys = () => {};
  const show = async (now, moved) => {
    const [prediction] = now.rows;
    const reason = prediction && run.explains && ask(path(["runs", run.name, "explanations", String(prediction.node)], { instances: 1 }), { signal });
    const node = prediction && (await ask(path(["runs", run.name, "nodes", run.target, String(prediction.node)], { limit: 8 }), { signal }));
    const asked = prediction && question(run, node, answer);
    keys = asked?.keys ?? (() => {});
    holder.replaceChildren(...[progress(run, now), asked?.element ?? finished(run), files(run, now)].filter(Boolean));
    reason && reason.then(({ sentence }) => (asked.element.querySelector(".sentence").textContent = plain(sentence)), () => {});
    if (moved) holder.querySelector(".question, h2")?.focus();
  };
  const answer = async (prediction, action, labels) => {
    try {
      const now = await askAnew(path(["runs", run.name, "reviews"], { limit: 1 }), { signal, body: { node: prediction.node, action, labels } });
      say(`${{ confirm: "Confirmed", correct: "Corrected", skip: "Skipped" }[action]}: ${plain(prediction.name)}. ${count(now.left)} left.`);
      await show(now, true);
    } catch (error) {
      if (error.name !== "AbortError") holder.querySelector(".trouble").textContent = error.message;
    }
  };
  await show(state, false);
  return { title: "Review", element: h("div", { onkeydown: (event) => keys(event) }, h("h1", {}, "Review"), h("p.lead", {}, `Say whether a prediction is right. The ${plural(run.target)} come first whose labels would teach the model most.`), holder) };
}

function progress(run, { answered, left }) {
  const words = [["confirm", "confirmed"], ["correct", "corrected"], ["skip", "skipped"]].filter(([key]) => answered[key]).map(([key, word]) => `${count(answered[key])} ${word}`);
  return h("p.total", { id: "progress" }, h("b", {}, count(left)), ` left`, words.length > 0 && `, ${words.join(", ")}`, ".");
}

/** One prediction with its row, and a button and a key for each answer. */
function question(run, node, answer) {
  const { prediction } = node;
  const order = run.labels.map((label, i) => ({ ...label, p: prediction.probabilities[i] })).sort((x, y) => y.p - x.p).slice(0, MANY);
  const chosen = new Set(prediction.predicted);
  const same = () => chosen.size === prediction.predicted.length && prediction.predicted.every((label) => chosen.has(label));
  const save = () => (run.multilabel && !same() ? answer(prediction, "correct", [...chosen]) : answer(prediction, "confirm", prediction.predicted));
  const pick = (label, button) => {
    if (!run.multilabel) return answer(prediction, prediction.predicted.includes(label) ? "confirm" : "correct", [label]);
    chosen[chosen.has(label) ? "delete" : "add"](label);
    button.setAttribute("aria-pressed", String(chosen.has(label)));
    confirm.firstChild.textContent = same() ? "Confirm" : "Save";
  };
  const confirm = h("button.button", { type: "button", id: "confirm", onclick: save }, "Confirm", h("kbd", {}, "c"));
  const skip = h("button", { type: "button", id: "skip", onclick: () => answer(prediction, "skip", []) }, "Skip", h("kbd", {}, "s"));
  const labels = order.map((label, i) => {
    const button = h("button", { type: "button", id: `label-${i}`, "aria-pressed": run.multilabel ? String(chosen.has(label.name)) : null, onclick: () => pick(label.name, button) },
      i < 9 && h("kbd", {}, String(i + 1)), name(label.name), h("small", {}, percent(label.p)));
    return button;
  });
  const keys = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const button = { c: confirm, s: skip }[event.key] ?? labels[Number(event.key) - 1];
    if (button) (event.preventDefault(), button.click());
  };
  const element = h("section.card.question", { tabindex: -1, "aria-label": `Is the prediction of ${plain(prediction.name)} right?` },
    h("h2", {}, h("a", { href: to(run.name, "node", [prediction.node]) }, name(prediction.name, "bdi"))),
    h("p", {}, predicted(run, prediction), " ", h("span.faint", {}, prediction.labels.length ? `The data says ${prediction.labels.map((one) => cut(plain(one), 40)).join(", ")}.` : "The label is not known.")),
    h("p.sentence", {}, ""),
    h("p.actions", {}, confirm, skip),
    h("h3", {}, run.multilabel ? "Tick what is right" : "Or choose another label"), h("div.shows", { role: "group", "aria-label": "Labels" }, labels),
    h("p.bad.trouble", { role: "alert" }),
    rowOf(node));
  return { element, keys };
}

const finished = (run) => h("section.card.empty", {}, h("h2", { tabindex: -1 }, "Nothing is left to review"), h("p", {}, `No ${run.target} is left without ${a("answer")}.`));

/** Where the answers are, and how to train with them. */
function files(run, { file, command, answered }) {
  if (!Object.keys(answered).length) return null;
  const told = h("p", { role: "status" });
  const start = h("button.button", { type: "button", id: "train", onclick: async () => {
    start.disabled = true;
    try {
      const { folder } = await askAnew(path(["runs", run.name, "train"]), { body: {} });
      told.replaceChildren(`Training ${plain(folder)}: `, h("a", { href: to(run.name, "runs") }, "see how far it is"), ".");
    } catch (error) {
      start.disabled = false;
      told.textContent = error.message;
    }
  } }, "Train with these answers");
  return section("Use the answers", `${some(Object.values(answered).reduce((x, y) => x + y), "answer")} in ${plain(file)}, each on the disk as soon as it is given.`,
    h("p.actions", {}, start, h("a.button.quiet", { href: `api/v1/${path(["runs", run.name, "reviews"], { format: "csv" })}`, download: "reviewed.csv" }, "Download")), told,
    h("p.hint", {}, "Or in a terminal:"), h("pre", { tabindex: 0 }, command));
}
