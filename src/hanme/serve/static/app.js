// The frame around the views: where we are, where one can go, and what is said when something fails.
import { go, here, nodeOf, to } from "./address.js";
import { ask, askAnew, path } from "./api.js";
import { fill, h, name, nouns, plural } from "./dom.js";
import { comparable } from "./words.js";
import { compareView } from "./views/compare.js";
import { nodeView } from "./views/node.js";
import { newView } from "./views/new.js";
import { nodesView } from "./views/nodes.js";
import { otherView } from "./views/other.js";
import { overviewView } from "./views/overview.js";
import { reviewView } from "./views/review.js";
import { runsView } from "./views/runs.js";
import { whatIfView } from "./views/what-if.js";

const VIEWS = { overview: overviewView, nodes: nodesView, node: nodeView, other: otherView, "what-if": whatIfView, review: reviewView, new: newView, runs: runsView, compare: compareView };
const main = document.getElementById("main");
let runs = null, stop = new AbortController(), shown = "";

/** Let a screen reader say something. */
function say(text) {
  document.getElementById("said").textContent = text;
}

async function show() {
  stop.abort();
  stop = new AbortController();
  const { signal } = stop, { hash } = location;
  const late = () => signal.aborted || location.hash !== hash; // what has been typed since is in the address only
  const address = here();
  const place = [address.run, address.view, ...address.rest].join("/");
  const moved = place !== shown;
  const waiting = setTimeout(() => (moved ? main.replaceChildren(skeleton()) : main.classList.add("busy")), moved ? 120 : 250);
  try {
    runs ??= (await askAnew("runs", { signal })).runs;
    const run = address.run ? runs.find((one) => one.name === address.run) : runs[0];
    if (!run) throw new Error(`There is no run ${address.run}. Choose one above.`);
    const view = VIEWS[address.view];
    if (!view) throw new Error(`There is no page ${address.view}.`);
    head(run, address);
    for (const [type, words] of Object.entries(run.nouns)) nouns.set(type, words);
    const found = await view({ ...address, run, runs, signal, say, refresh });
    if (late()) return;
    replace(found.element, moved && shown !== "");
    document.title = `${found.title} – ${run.name} – hanme`;
  } catch (error) {
    if (late()) return;
    head(runs?.find((one) => one.name === address.run) ?? runs?.[0], address);
    replace(failure(error), moved && shown !== "");
    document.title = "That did not work – hanme";
  } finally {
    clearTimeout(waiting);
    if (!signal.aborted) main.classList.remove("busy");
  }
  shown = place;
}

/** Ask for the runs again: one more has been trained. */
async function refresh() {
  runs = (await askAnew("runs")).runs;
  return runs;
}

/** Put a view in the place of the old one. Of the same page, details with an id stay open, drafts (fields that the address does not hold) keep their values, and the focus stays on what has the same id; on a new page it goes to the heading. */
function replace(element, moved) {
  const focused = document.activeElement;
  const id = main.contains(focused) && focused.id;
  const { selectionStart: begin, selectionEnd: end } = focused;
  const open = moved ? [] : [...main.querySelectorAll("details[open][id]")].map((details) => details.id);
  const drafts = moved ? [] : [...main.querySelectorAll("[data-draft]")].filter((field) => field.value);
  main.replaceChildren(element);
  for (const { id, value } of drafts) {
    const field = document.getElementById(id);
    if (!field) continue;
    field.value = value;
    field.dispatchEvent(new Event("input"));
  }
  for (const details of open) document.getElementById(details)?.setAttribute("open", "");
  const again = id && document.getElementById(id);
  if (again && !moved) {
    again.focus({ preventScroll: true });
    if (typeof begin === "number" && again.setSelectionRange) again.setSelectionRange(begin, end);
  } else if (moved) {
    scrollTo(0, 0);
    const heading = main.querySelector("h1");
    heading?.setAttribute("tabindex", -1);
    heading?.focus({ preventScroll: true });
  }
}

function head(run, address) {
  const top = document.getElementById("top");
  const key = JSON.stringify([run?.name, address.view, address.rest]);
  if (top.dataset.key === key) return;
  top.dataset.key = key;
  const link = (words, view, rest, current) =>
    h("a", { href: to(run.name, view, rest), "aria-current": current ? "page" : null }, words);
  const other = run && runs.find((one) => comparable(run, one));
  fill(top,
    h("a.brand", { href: run ? to(run.name, "overview") : "#/" }, h("img", { src: "icon.svg", alt: "", width: 24, height: 24 }), "hanme"),
    run && h("label.run", {}, h("span.unseen", {}, "Run"),
      h("select", { id: "run", onchange: (event) => go(to(event.target.value, ["overview", "nodes"].includes(address.view) ? address.view : "overview")) },
        runs.map((one) => h("option", { value: one.name, selected: one === run }, one.name)))),
    run && h("nav", { "aria-label": "Views" },
      link("Overview", "overview", [], address.view === "overview"),
      link("Review", "review", [], address.view === "review"),
      link(capital(plural(run.target)), "nodes", [], ["nodes", "node", "other", "what-if"].includes(address.view)),
      link("New row", "new", [], address.view === "new"),
      link("Runs", "runs", [], address.view === "runs"),
      other && link("Compare", "compare", [other.name], address.view === "compare")),
    run && finder(run),
    h("button.theme", { type: "button", id: "theme", onclick: turn, "aria-label": "Switch between dark and light" }, "◐"));
}

/** The search field: names as they are typed, misspelt ones too. */
function finder(run) {
  const list = h("ul.found", { id: "found", hidden: true });
  let asking = new AbortController();
  const close = () => (list.hidden = true);
  const field = h("input", {
    id: "find", type: "search", placeholder: "Find a name or id", "aria-label": "Find by name or id", autocomplete: "off", "aria-controls": "found",
    oninput: async () => {
      asking.abort();
      asking = new AbortController();
      const { signal } = asking;
      const q = field.value.trim();
      if (!q) return close();
      try {
        const { nodes } = await ask(path(["runs", run.name, "search"], { q, limit: 8 }), { signal });
        if (signal.aborted) return;
        fill(list, nodes.map((node) => h("li", {}, h("a", { href: nodeOf(run, node.type, node.number), onclick: close }, name(node.name), h("small", {}, name(node.type === run.target ? node.id : node.type))))),
          nodes.length === 0 && h("li.none", {}, "Nothing found"));
        list.hidden = false;
        say(nodes.length ? `${nodes.length} found` : "Nothing found");
      } catch (error) {
        if (error.name !== "AbortError") say(error.message);
      }
    },
    onkeydown: (event) => {
      if (event.key === "Escape") close();
      const first = list.querySelector("a");
      // A late answer would replace the list, and the focus with it.
      if (event.key === "ArrowDown" && first) (event.preventDefault(), asking.abort(), first.focus());
      if (event.key === "Enter" && first && !list.hidden) first.click();
    },
  });
  list.addEventListener("keydown", (event) => {
    const links = [...list.querySelectorAll("a")], next = links[links.indexOf(document.activeElement) + { ArrowDown: 1, ArrowUp: -1 }[event.key]];
    if (event.key === "ArrowDown" || event.key === "ArrowUp") (event.preventDefault(), (next ?? field).focus());
    if (event.key === "Escape") (close(), field.focus());
  });
  const box = h("div.finder", { role: "search" }, field, list);
  box.addEventListener("focusout", (event) => box.contains(event.relatedTarget) || close());
  return box;
}

function turn() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("hanme-theme", root.dataset.theme);
  } catch {
    // storage is switched off: the choice lasts as long as the page
  }
  say(`${dark ? "Light" : "Dark"} colours`);
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const skeleton = () => h("div.waiting", { role: "status" }, h("p", {}, "Loading …"), h("div.bone"), h("div.bone"));
const failure = (error) => h("div.card.failure", { role: "alert" }, h("h1", {}, "That did not work"), h("p", {}, error.message),
  h("p", {}, h("button", { type: "button", onclick: () => show() }, "Try again"), " ", h("a", { href: "#/" }, "Back to the start")));

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address holds the state, not a place on the page
  main.focus();
});
addEventListener("hashchange", show);
show();

