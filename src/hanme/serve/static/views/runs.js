// Runs: all runs of the folder with settings, scores and differences; those in training with their curves.
import { to } from "../address.js";
import { askAnew, path } from "../api.js";
import { lines } from "../charts.js";
import { count, h, name, percent, plain, section, table } from "../dom.js";
import { comparable } from "../words.js";

const PAUSE = 2000;

export async function runsView({ run, runs, signal, refresh }) {
  const holder = h("div.stack", {});
  const update = async () => {
    const found = await askAnew(path(["listing"], { run: run.name }), { signal });
    const served = found.runs.filter((one) => one.served).length > runs.length ? await refresh() : runs;
    const now = found.runs.filter((one) => one.state === "training").map(inTraining);
    holder.replaceChildren(...(found.training && !now.length ? [h("p.note", { role: "status" }, "Training is starting or ending …")] : now),
      ...[found.error && h("p.note", { role: "alert" }, `The last training failed: ${plain(found.error)}`), all(run, served, found.runs)].filter(Boolean));
    return found.training || found.runs.some((one) => one.state === "training");
  };
  const again = async () => {
    try {
      while (!signal.aborted && (await update())) await new Promise((resolve) => setTimeout(resolve, PAUSE));
    } catch (error) {
      if (error.name !== "AbortError") holder.replaceChildren(h("p.bad", {}, error.message));
    }
  };
  if (await update()) setTimeout(again, PAUSE);
  return { title: "Runs", element: h("div", {}, h("h1", {}, "Runs"), h("p.lead", {}, "All runs of the folder, the latest first."), holder) };
}

const left = (seconds) => (seconds >= 90 ? `about ${Math.round(seconds / 60)} minutes left` : `about ${Math.ceil(seconds)} seconds left`);

function inTraining(one) {
  const line = (key, title, kind) => ({ name: title, kind, points: one.curve.filter((row) => Number.isFinite(row[key])).map((row) => [row.epoch, row[key]]) });
  const series = [line("train_micro", "training", "plain"), line("val_micro", "validation", "model")].filter((each) => each.points.length > 1);
  const about = [one.stage || "training", one.percent !== null && `${Math.round(one.percent)} %`, one.seconds_left !== null && left(one.seconds_left)].filter(Boolean).join(", ");
  const picture = series.length > 0 && lines(series);
  picture && picture.setAttribute("role", "img");
  picture && picture.setAttribute("aria-label", "Micro F1 by epoch");
  return section(`${plain(one.folder)} is in training`, h("span", { role: "status" }, `${about}.`),
    one.percent !== null && h("progress", { max: 100, value: one.percent, "aria-label": "Progress" }), picture,
    series.length > 0 && h("p.hint", {}, h("span.key.plain", {}, "training"), " ", h("span.key.model", {}, "validation"), ` Micro F1, epoch ${count(one.epochs)}.`));
}

function all(run, runs, listed) {
  const score = (one, part, which) => (one.scores?.[part] ? percent(one.scores[part][which] / 100, 1) : "–");
  const other = (one) => runs.find((each) => each.name === one.served);
  return section("All runs", `F1 on validation and test rows. Differences are settings unlike those of ${plain(run.name)}.`,
    table("Runs", ["run", "model", "state", "validation", "test", "macro, test", "reviewed", "differences"], listed.map((one) => [
      one.served ? h("a", { href: to(one.served, "overview") }, name(one.folder)) : name(one.folder),
      one.model ?? "–", one.state === "damaged" ? h("span.bad", { title: plain(one.message) }, "damaged") : one.state,
      score(one, "val", "micro"), score(one, "test", "micro"), score(one, "test", "macro"), one.reviewed ? count(one.reviewed) : "",
      [one.served === run.name ? h("span.faint", {}, "this run") : one.differences.length ? h("details", {}, h("summary", {}, `${one.differences.length} settings`), h("ul", {}, one.differences.map((each) => h("li", {}, each)))) : h("span.faint", {}, "none"),
        other(one) && comparable(run, other(one)) && [" ", h("a", { href: to(run.name, "compare", [one.served]) }, "What changed?")]],
    ]), { numeric: [3, 4, 5, 6], hidden: true, cards: true }));
}
