// What if: take links and paths away, add links, and see what the model would say.
import { change, here, to } from "../address.js";
import { ask, path } from "../api.js";
import { count, cut, h, meter, name, percent, plain, section, signed, some } from "../dom.js";
import { keyOf } from "../graph.js";
import { metapathWords, namesOf, relationWords } from "../words.js";
import { effectOf, linkOf, linksOf, tried, tryEach } from "./changes.js";
import { header } from "./node.js";
import { chips } from "./nodes.js";

const TRIED = 30, FEWEST = 10, PATHS = 40, MANY = 12;

export async function whatIfView({ run, runs, rest, query, signal, say }) {
  if (!run.explains) throw new Error(run.why_not);
  const number = Number(rest[0]);
  const [node, graph] = await Promise.all([
    ask(path(["runs", run.name, "nodes", run.target, rest[0]], { limit: 100 }), { signal }), ask(path(["runs", run.name, "graph"]), { signal })]);
  const first = await ask(path(["runs", run.name, "explanations", rest[0]], { label: query.get("label") ?? "", top: PATHS }), { signal });
  const state = { run, node, number, graph, label: first.label, cut: query.getAll("cut"), drop: query.getAll("drop"), add: query.getAll("add"), signal };
  const result = await tried(state, state);
  if (changed(state)) say(sentence(state, result));
  const cells = new Map();
  const most = h("div.most", { "aria-live": "polite" });
  const element = h("div.node", {}, header(run, runs, node.prediction, "what-if"),
    h("div.what-if", {}, outcome(state, result),
      h("div.levers", {},
        section("What would change it?", ["Untick a link: the model answers at once, as if the link had never been there. The last column tries each link by itself."], most, links(state, cells)),
        adding(state, await added(state)),
        pathsOf(state, first)),
      changed(state) && h("p.result", { "aria-hidden": "true" }, sentence(state, result))));
  levers(state, cells, most);
  return { title: `What if: ${node.prediction.name}`, element };
}

const changed = (state) => state.cut.length + state.drop.length + state.add.length > 0;

function sentence({ run, label }, { before, after }) {
  const at = run.labels.findIndex((one) => one.name === label);
  const same = before.predicted.join() === after.predicted.join();
  const move = `${plain(label)}: ${percent(before.probabilities[at])} → ${percent(after.probabilities[at])}.`;
  return same ? `Same answer. ${move}` : `The answer changes to ${after.predicted.map(plain).join(", ") || "no label"}. ${move}`;
}

function outcome(state, { before, after }) {
  const { run, label } = state;
  const order = run.labels.map((one, i) => ({ ...one, was: before.probabilities[i], is: after.probabilities[i] })).sort((a, b) => b.was - a.was);
  const shown = order.filter((one, i) => i < MANY || one.name === label || before.predicted.includes(one.name) || after.predicted.includes(one.name));
  const rows = shown.map((one) => {
    const now = changed(state);
    const bar = meter(now ? "span.meter.two" : "span.meter", [now && ["span.was", one.was], ["span.fill", one.is], one.threshold !== null && ["span.threshold", one.threshold]]);
    const inside = [h("span.label", {}, name(one.name)), bar, h("span.value", {}, now ? `${percent(one.was)} → ${percent(one.is)}` : percent(one.was)),
      h("span.marks", {}, after.predicted.includes(one.name) && h("span.chip", {}, now ? "now predicted" : "predicted"))];
    return h("li", {}, h("button.row", { type: "button", id: `label-${order.indexOf(one)}`, "aria-pressed": String(one.name === label), onclick: () => change({ label: one.name }) }, h("span.unseen", {}, "Watch "), inside));
  });
  const same = before.predicted.join() === after.predicted.join();
  return h("section.card.outcome", { "aria-label": "The answer" }, h("h2", {}, changed(state) ? "The answer now" : "The answer as it is"),
    changed(state) && h(same ? "p.verdict" : "p.verdict.turned", {}, same ? "Same answer: " : "The answer changes: ", chips(before.predicted, () => ""), !same && [" → ", chips(after.predicted, () => "")]),
    h("ul.meters", {}, rows),
    h("p.hint", {}, changed(state)
      ? `${some(state.cut.length, "link")} taken away, ${state.add.length} added, ${some(state.drop.length, "path")} taken away; ${some(after.instances, "path")} left of ${count(before.instances)}.`
      : "Nothing is changed yet. Choose a label to watch."),
    h("p.actions", {}, changed(state) && h("button", { type: "button", id: "undo", onclick: () => change({ cut: [], drop: [], add: [] }) }, "Undo all"),
      h("a.button.quiet", { href: to(run.name, "node", [state.number], { label }) }, "Why?")),
    h("p.hint", {}, "Exact. Links and paths can be changed here; features, and the weights of metapaths, stay as they are. Share this page by its address."));
}

function links(state, cells) {
  const { node, number } = state;
  const groups = node.links.filter((group) => group.nodes.length);
  if (!groups.length) return h("p.hint", {}, "It has no links.");
  return groups.map((group, g) => h("fieldset", {}, h("legend", {}, relationWords(state.graph, group.relation), h("small", {}, ` ${some(group.count, "link")}${group.count > group.nodes.length ? `, the first ${group.nodes.length}` : ""}`)),
    h("ul.ticks", {}, group.nodes.map((other, i) => {
      const key = `${group.relation}|${number}|${other.number}`;
      const effect = h("span.effect", {}, "");
      cells.set(key, effect);
      return h("li", {}, h("label", {}, h("input", { type: "checkbox", id: `link-${g}-${i}`, checked: !state.cut.includes(key), onchange: (event) => tick("cut", key, !event.target.checked) }), name(other.name)), effect);
    }))));
}

/** Add what is chosen to a parameter of the address, or take it out. */
function tick(parameter, key, on) {
  const now = here().query.getAll(parameter).filter((one) => one !== key);
  change({ [parameter]: on ? [...now, key] : now });
}

/** Try each link by itself, and say which one counts most. */
async function levers(state, cells, most) {
  try {
    const found = await tryEach(state, linksOf(state.node).slice(0, TRIED), (one) => cells.get(one.key).replaceChildren(...effectOf(one)));
    if (found.length) most.replaceChildren(strongest(state, found));
  } catch (error) {
    if (error.name !== "AbortError") most.replaceChildren(h("p.bad", {}, error.message));
  }
}

function strongest(state, found) {
  const { label, node, graph } = state;
  const given = node.prediction.predicted.includes(label);
  const ordered = [...found].sort((a, b) => (given ? a.is - b.is : b.is - a.is));
  const [top] = ordered, turning = found.filter((one) => one.turned).length;
  const words = Math.abs(top.is - top.was) < 0.005 ? [`No single link moves ${cut(plain(label), 40)} by a percent.`]
    : ["The strongest: without ", h("b", {}, name(top.other.name)), `, ${relationWords(graph, top.relation)}, `, name(label), ` goes from ${percent(top.was)} to ${percent(top.is)}.`];
  const answer = turning ? `${turning === 1 ? "One link" : `Each of ${turning} links`} by itself would change the answer.` : "No single link would change the answer.";
  return h("p.note", {}, words, " ", answer, " ", h("button", { type: "button", id: "fewest", onclick: (event) => fewest(state, ordered, event.target) }, given ? `Find links that make it lose ${cut(plain(label), 30)}` : `Find links that make it ${cut(plain(label), 30)}`));
}

/** Take links away, strongest first, until the label is lost or won. */
async function fewest(state, ordered, button) {
  button.disabled = true;
  const given = state.node.prediction.predicted.includes(state.label);
  const helping = ordered.filter((one) => (given ? one.is < one.was : one.is > one.was)).slice(0, FEWEST);
  const chosen = [];
  for (const { key } of helping) {
    chosen.push(key);
    const { after } = await tried(state, { cut: chosen });
    if (after.predicted.includes(state.label) !== given) return change({ cut: chosen, add: [], drop: [] });
  }
  button.replaceWith(h("b", { role: "status" }, `Taking ${some(helping.length, "link")} away does not do it.`));
}

/** The nodes at the other ends of links that are added, with their names. */
function added({ run, add, graph, signal }) {
  return Promise.all(add.map(async (key) => {
    const { relation, target } = linkOf(key), type = graph.relations.find((one) => one.relation === relation)?.target ?? "";
    return { key, relation, node: await ask(path(["runs", run.name, "nodes", type, String(target)], { limit: 1 }), { signal }) };
  }));
}

/** The numbers of the nodes that a relation leads to already. */
function linkedBy({ node, add }, relation) {
  const own = node.links.find((group) => group.relation === relation)?.nodes ?? [];
  return new Set([...own.map((other) => other.number), ...add.map(linkOf).filter((link) => link.relation === relation).map((link) => link.target)]);
}

function adding(state, now) {
  const { run, number, graph } = state;
  const relations = graph.relations.filter((one) => one.source === run.target);
  if (!relations.length) return null;
  const which = h("select", { id: "add-relation" }, relations.map((one) => h("option", { value: one.relation }, relationWords(graph, one.relation))));
  const list = h("ul.found.still", {});
  const field = h("input", { id: "add-name", type: "search", autocomplete: "off", placeholder: "Name or id" });
  let asking = new AbortController();
  const search = async () => {
    asking.abort();
    asking = new AbortController();
    const relation = relations.find((one) => one.relation === which.value), q = field.value.trim();
    if (!q) return list.replaceChildren();
    try {
      const { nodes } = await ask(path(["runs", run.name, "search"], { q, type: relation.target, limit: 6 }), { signal: asking.signal });
      const there = linkedBy(state, relation.relation);
      list.replaceChildren(...nodes.map((other) => there.has(other.number) ? h("li.none", {}, name(other.name), h("small", {}, "linked already")) : h("li", {}, h("button", { type: "button", onclick: () => tick("add", `${relation.relation}|${number}|${other.number}`, true) }, "Add ", name(other.name), h("small", {}, other.id)))),
        nodes.length ? "" : h("li.none", {}, "Nothing found"));
    } catch (error) {
      if (error.name !== "AbortError") list.replaceChildren(h("li.none", {}, error.message));
    }
  };
  field.addEventListener("input", search);
  which.addEventListener("change", search);
  return section("Add a link", "Give it a link that it does not have.",
    now.length > 0 && h("ul.ticks", {}, now.map(({ key, relation, node }, i) => h("li", {}, h("label", {}, h("input", { type: "checkbox", id: `added-${i}`, checked: true, onchange: () => tick("add", key, false) }), name(node.name)), h("span.effect", {}, relationWords(graph, relation))))),
    h("div.filters", {}, h("label", {}, h("span", {}, "Relation"), which), h("label", {}, h("span", {}, "To"), field)), list);
}

function pathsOf(state, first) {
  if (!first.instances.length) return null;
  return section("Single paths", `Untick a path: it is taken out of the attention alone, and its links stay. The ${first.instances.length} that add most to ${cut(plain(first.label), 40)}:`,
    h("ul.ticks.paths", { tabindex: 0, "aria-label": "Paths" }, first.instances.map((one, i) => {
      const key = keyOf(one);
      return h("li", {}, h("label", {}, h("input", { type: "checkbox", id: `path-${i}`, checked: !state.drop.includes(key), onchange: (event) => tick("drop", key, !event.target.checked) }),
        name(namesOf(one).join(" → ")), h("small", {}, metapathWords(one.metapath))), h("span.effect", {}, `adds ${signed(one.part, 3)}`));
    })));
}
