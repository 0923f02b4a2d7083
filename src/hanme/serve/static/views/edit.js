// Fields to edit a row: its columns, and links to known nodes by name.
import { change, here } from "../address.js";
import { ask, path } from "../api.js";
import { cut, h, name, section } from "../dom.js";
import { relationWords } from "../words.js";

/** Read a link as the address has it: its relation, which may hold any character, and two numbers. */
export function linkOf(text) {
  const parts = text.split("|");
  const [source, target] = parts.slice(-2).map(Number);
  return { relation: parts.slice(0, -2).join("|"), source, target };
}

/** Add what is chosen to a parameter of the address, or take it out. */
export function tick(parameter, key, on) {
  const now = here().query.getAll(parameter).filter((one) => one !== key);
  change({ [parameter]: on ? [...now, key] : now });
}

/** Read the cells that the address sets: {column: text}. */
export function cellsOf(query) {
  return Object.fromEntries(query.getAll("set").map((one) => [one.slice(0, one.indexOf("=")), one.slice(one.indexOf("=") + 1)]));
}

const PAUSE = 250; // milliseconds without a key after which the model answers

/** Say why there is no answer, where the answer would be: the form beside it stays. */
export const refused = (error) => section("The answer", null, h("p.bad", { role: "alert" }, error.message));

/** A field for each column that the model reads; `own` are the cells of the row as it is. What is typed is in the address at once. */
export function columnFields(graph, own, cells) {
  const set = (column, value) => {
    const { [column]: before, ...rest } = cellsOf(here().query);
    const now = value === (own[column] ?? "") ? rest : { ...rest, [column]: value };
    change({ set: Object.entries(now).map(([key, text]) => `${key}=${text}`) }, { wait: PAUSE, replace: before !== undefined }); // Back undoes a column, not a key
  };
  return h("div.filters.cells-form", {}, graph.columns.map(({ column, title, kind, values }, i) => {
    const now = cells[column] ?? own[column] ?? "", id = `cell-${i}`;
    const oninput = (event) => event.isComposing || set(column, event.target.value), onchange = oninput; // at its end, what was composed is whole
    const choices = kind === "category" && [...new Set(["", ...(now ? [now] : []), ...values])];
    return h("label", {}, h("span", {}, cut(title, 40), column in cells && column in own && h("b", {}, " changed")),
      choices ? h("select", { id, oninput }, choices.map((value) => h("option", { value, selected: value === now }, value === "" ? "(empty)" : cut(value, 60))))
        : h("input", { id, type: kind === "date" ? "text" : "search", inputmode: kind === "number" ? "decimal" : null, value: now, oninput, onchange }));
  }));
}

/** The nodes at the other ends of the links that the address adds, with their names. */
export function added({ run, add, graph, signal }) {
  return Promise.all(add.map(async (key) => {
    const { relation, target } = linkOf(key), type = graph.relations.find((one) => one.relation === relation)?.target ?? "";
    return { key, relation, node: await ask(path(["runs", run.name, "nodes", type, String(target)], { limit: 1 }), { signal }) };
  }));
}

/** A field that finds nodes to link to; `there` has the numbers that a relation leads to already. */
export function adding({ run, number, graph }, now, there, title, about) {
  const relations = graph.relations.filter((one) => one.source === run.target);
  if (!relations.length) return null;
  const which = h("select", { id: "add-relation", "data-draft": "" }, relations.map((one) => h("option", { value: one.relation }, relationWords(graph, one.relation))));
  const list = h("ul.found.still", {});
  const field = h("input", { id: "add-name", "data-draft": "", type: "search", autocomplete: "off", placeholder: "Name or id" });
  let asking = new AbortController();
  const add = (key) => {
    field.value = "";
    tick("add", key, true);
  };
  const search = async () => {
    asking.abort();
    asking = new AbortController();
    const relation = relations.find((one) => one.relation === which.value), q = field.value.trim();
    if (!q) return list.replaceChildren();
    try {
      const { nodes } = await ask(path(["runs", run.name, "search"], { q, type: relation.target, limit: 6 }), { signal: asking.signal });
      const linked = there(relation.relation);
      list.replaceChildren(...nodes.map((other) => linked.has(other.number) ? h("li.none", {}, name(other.name), h("small", {}, "linked already")) : h("li", {}, h("button", { type: "button", onclick: () => add(`${relation.relation}|${number}|${other.number}`) }, "Add ", name(other.name), h("small", {}, other.id)))),
        nodes.length ? "" : h("li.none", {}, "Nothing found"));
    } catch (error) {
      if (error.name !== "AbortError") list.replaceChildren(h("li.none", {}, error.message));
    }
  };
  field.addEventListener("input", search);
  which.addEventListener("change", search);
  return section(title, about,
    now.length > 0 && h("ul.ticks", {}, now.map(({ key, relation, node }, i) => h("li", {}, h("label", {}, h("input", { type: "checkbox", id: `added-${i}`, checked: true, onchange: () => tick("add", key, false) }), name(node.name)), h("span.effect", {}, relationWords(graph, relation))))),
    h("div.filters", {}, h("label", {}, h("span", {}, "Relation"), which), h("label", {}, h("span", {}, "To"), field)), list);
}
