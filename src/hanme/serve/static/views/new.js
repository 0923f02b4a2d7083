// New row: columns and links of a row that is in no table, predicted and explained; or a file of such rows.
import { to } from "../address.js";
import { ask, askAnew, path } from "../api.js";
import { h, name, section, some, table } from "../dom.js";
import { added, adding, cellsOf, columnFields, linkOf, refused } from "./edit.js";
import { says } from "./labels.js";
import { predicted } from "./nodes.js";
import { reasons } from "./why.js";

export async function newView({ run, query, signal, say }) {
  const graph = await ask(path(["runs", run.name, "graph"]), { signal });
  const state = { run, graph, number: 0, add: query.getAll("add"), cells: cellsOf(query), signal };
  const now = await added(state);
  const there = (relation) => new Set(state.add.map(linkOf).filter((link) => link.relation === relation).map((link) => link.target));
  const filled = now.length + Object.keys(state.cells).length > 0;
  return {
    title: `New ${run.target}`,
    element: h("div.node", {}, h("h1", {}, `New ${run.target}`), h("p.lead", {}, `Describe a ${run.target} that is in no table: its columns, and its links to what is known. The model answers without learning anew.`),
      h("div.grid", {},
        h("div.levers", {},
          adding(state, now, there, "Its links", "Find what it is linked to by name or id."),
          graph.columns.length > 0 && section("Its columns", "Leave empty what is not known.", columnFields(graph, {}, state.cells)),
          upload(state)),
        h("div.stack", {}, filled ? await answer(state, say).catch(refused) : section("The answer", "Fill in a column or add a link.")))),
  };
}

async function answer({ run, add, cells, signal }, say) {
  const links = {};
  for (const { relation, target } of add.map(linkOf)) (links[relation] ??= []).push(target);
  const { rows: [{ prediction, explanation, notes }] } = await ask(path(["runs", run.name, "rows"]), { signal, body: { rows: [{ columns: cells, links }] } });
  say(explanation?.sentence ?? prediction.predicted.join(", "));
  return [noted(notes), explanation && h("p.sentence", {}, explanation.sentence), says(run, prediction, null, null), explanation && reasons(run, prediction, explanation, (type, number) => (type === run.target ? to(run.name, "node", [number]) : to(run.name, "other", [type, number])))];
}

/** What the model does not know of a row. */
const noted = (notes) => notes.map((note) => h("p.note", {}, note));

/** A CSV file with the columns of the table, and a column of names per relation. */
function upload({ run, graph, signal }) {
  const results = h("div", { "aria-live": "polite" });
  const heads = [...graph.columns.map((one) => one.column), ...graph.relations.filter((one) => one.source === run.target).map((one) => one.relation)];
  const send = async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    const post = (query = {}) => askAnew(path(["runs", run.name, "rows.csv"], query), { signal, body: file });
    const ask = async (cell, i) => {
      try {
        cell.replaceChildren((await post({ explain: i })).rows[i].explanation.sentence);
      } catch (error) {
        if (error.name !== "AbortError") cell.replaceChildren(h("span.bad", { role: "alert" }, error.message));
      }
    };
    const why = ({ prediction, explanation, notes }, i) => {
      const cell = h("span", {}, explanation?.sentence ?? (run.explains && h("button", { type: "button", "aria-label": `Why? ${prediction.name}`, onclick: () => ask(cell, i) }, "Why?")));
      return [cell, noted(notes)];
    };
    try {
      const { rows } = await post();
      results.replaceChildren(h("p", {}, some(rows.length, "row"), "."), table("Predictions of the file", [run.target, "predicted", "why"],
        rows.map((row, i) => [name(row.prediction.name), predicted(run, row.prediction), why(row, i)]), { hidden: true, cards: true }));
    } catch (error) {
      if (error.name !== "AbortError") results.replaceChildren(h("p.bad", { role: "alert" }, error.message));
    }
  };
  return section("Or a file", ["A CSV file of up to 100 rows with the columns of the table. A column that is named for a relation has names or ids, separated by |. Possible: ", heads.map((one, i) => [i > 0 && ", ", h("code", {}, one)]), "."],
    h("p", {}, h("label", {}, h("span.unseen", {}, "CSV file"), h("input", { id: "upload", type: "file", accept: ".csv,text/csv", onchange: send }))), results);
}
