// The instances of a node along one metapath as a picture to touch: the node on the left, its instances to the right.
import { change } from "./address.js";
import { fit } from "./charts.js";
import { count, h, name, percent, plain, s, signed } from "./dom.js";
import { namesOf } from "./words.js";

const ROW = 40, BOX = 30, HEAD = 26, MOST = 12, NEAR = 12;
let active = null; // the id of the node that has the focus: it gets it again whenever the picture is drawn anew
document.addEventListener("pointerdown", () => { active = null; }, true);
document.addEventListener("focusin", ({ target }) => { active = target.closest(".graph .node")?.id || null; });

/** Name an instance: its metapath and the numbers of its nodes. */
export const keyOf = (instance) => [instance.metapath, ...instance.nodes.map((node) => node.number)].join("|");

/**
 * Draw instances. Width is attention, colour the move of the label.
 *
 * @param instances Instances of one metapath, as the API has them.
 * @param scored What they move, in words.
 * @param href (type, number) => the address of a node, or null where it has no page.
 * @param expands Whether a click, or Enter, on a node shows its neighbours; else it opens the node.
 * @param expanded The node whose neighbours are shown, as the API has it, or null.
 * @param onpick Called with the keys of the instances through what is pointed at, or null.
 */
export function instanceGraph(instances, scored, { href, expands = false, expanded = null, onpick = () => {} }) {
  const shown = instances.slice(0, MOST);
  const plane = s("g");
  const picture = s("svg.graph", { role: "group", "aria-label": `Paths of this node. Arrow keys move between nodes, plus and minus zoom${expands ? ", Enter shows the neighbours of a node" : ""}.` }, plane);
  const view = { x: 0, y: 0, scale: 1, moved: new Map() };
  const about = h("p.picked", { "aria-live": "polite" }, "Point at a node or a line to see what goes through it.");
  const place = () => plane.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
  const zoom = (factor) => {
    view.scale = factor ? Math.min(4, Math.max(0.4, view.scale * factor)) : 1;
    if (!factor) Object.assign(view, { x: 0, y: 0, moved: new Map() });
    if (!factor) layout();
    place();
  };

  const pick = (through) => {
    for (const element of plane.querySelectorAll("[data-through]")) {
      const own = element.dataset.through.split(" ");
      element.classList.toggle("lit", through !== null && own.some((i) => through.includes(i)));
    }
    plane.classList.toggle("picking", through !== null);
    onpick(through === null ? null : through.map((i) => keyOf(shown[i])));
    about.replaceChildren(...(through === null ? ["Point at a node or a line to see what goes through it."] : describe(through.map((i) => shown[i]), scored)));
  };

  function layout() {
    const width = Math.max(280, picture.parentElement?.clientWidth ?? 640);
    const drawn = arrange(shown, width);
    const near = expanded ? neighbours(drawn, expanded) : [];
    picture.setAttribute("viewBox", `0 0 ${width} ${drawn.height}`);
    picture.setAttribute("width", width);
    picture.setAttribute("height", drawn.height);
    for (const node of drawn.nodes) Object.assign(node, view.moved.get(node.key) ?? {});
    const links = drawn.links.map((link) => curve(link, drawn, shown));
    const nodes = drawn.nodes.map((node) => box(node, drawn, { href, pick, expands, expanded, metapath: shown[0].metapath }));
    const heads = drawn.heads.map(({ x, words }) => s("text.head", { x, y: 17, "text-anchor": "middle", "aria-hidden": "true" }, fit(plain(words), drawn.box)));
    const lines = near.map((link) => { const line = s("path.link.near", { d: bend(link, drawn) }); line.link = link; return line; });
    plane.replaceChildren(...heads, ...lines, ...links, ...nodes);
    for (const link of links) {
      link.addEventListener("pointerenter", () => pick(link.dataset.through.split(" ")));
      link.addEventListener("pointerleave", () => pick(null));
    }
    dragging(drawn, [...links, ...lines], nodes, view);
    roving(nodes);
    if (active && !document.activeElement?.closest("main *")) nodes.find(({ id }) => id === active)?.focus({ preventScroll: true });
  }

  panning(picture, view, place);
  picture.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15);
  }, { passive: false });
  picture.addEventListener("keydown", (event) => {
    const factor = { "+": 1.25, "=": 1.25, "-": 0.8, 0: null }[event.key];
    if (factor === undefined) return;
    event.preventDefault();
    zoom(factor);
  });
  const holder = h("div.canvas", {}, picture);
  new ResizeObserver(() => layout()).observe(holder);
  const more = instances.length - shown.length;
  return h("div.instances", {},
    h("div.tools", { role: "group", "aria-label": "Zoom" },
      h("button", { type: "button", onclick: () => zoom(1.25), "aria-label": "Zoom in" }, "+"),
      h("button", { type: "button", onclick: () => zoom(0.8), "aria-label": "Zoom out" }, "−"),
      h("button", { type: "button", onclick: () => zoom(null) }, "Reset")),
    holder, about, expanded && opened(expanded, href),
    more > 0 && h("p.hint", {}, `The picture shows the first ${MOST}; ${count(more)} more are in the list.`));
}

function describe(some, scored) {
  const attention = some.reduce((sum, one) => sum + one.attention, 0);
  const move = some.reduce((sum, one) => sum + one.move, 0);
  const what = some.length === 1 ? [name(["via", namesOf(some[0]).join(" → ")].join(" "))] : [`${count(some.length)} paths`];
  return [...what, `: ${percent(attention, 1)} of the attention; moves ${plain(scored)} by ${signed(move, 3)}`];
}

/** Give every node of the instances a place: a column per position, little crossing of lines. */
function arrange(instances, width) {
  const columns = instances.length ? instances[0].nodes.length : 1;
  const nodes = new Map(), links = new Map();
  instances.forEach((one, i) => {
    const titles = [one.nodes[0].name, ...namesOf(one)];
    one.nodes.forEach(({ type, number }, position) => {
      const key = `${position}:${number}`;
      if (!nodes.has(key)) nodes.set(key, { key, position, title: titles[position], type, number, through: [] });
      nodes.get(key).through.push(i);
      if (position === 0) return;
      const from = `${position - 1}:${one.nodes[position - 1].number}`, way = `${from}>${key}`;
      if (!links.has(way)) links.set(way, { from: nodes.get(from), to: nodes.get(key), through: [] });
      links.get(way).through.push(i);
    });
  });
  const gap = Math.min(90, width * 0.09), box = (width - gap * (columns - 1) - 4) / columns;
  const rows = Array.from({ length: columns }, (_, position) => [...nodes.values()].filter((node) => node.position === position));
  const tallest = Math.max(...rows.map((row) => row.length), 3);
  const height = HEAD + ROW * tallest + 8;
  rows.forEach((row, position) => {
    const before = (node) => mean([...links.values()].filter((link) => link.to === node).map((link) => link.from.y));
    if (position > 0) row.sort((a, b) => before(a) - before(b));
    const step = Math.min(ROW * 1.6, (height - HEAD - 8) / row.length);
    row.forEach((node, i) => {
      node.x = 2 + position * (box + gap);
      node.y = (height + HEAD) / 2 + (i - (row.length - 1) / 2) * step;
    });
  });
  const heads = rows.map((row, position) => ({ x: 2 + position * (box + gap) + box / 2, words: position ? row[0].type : `this ${row[0].type}` }));
  return { nodes: [...nodes.values()], links: [...links.values()], heads, box, height };
}

/** Place the neighbours of a node below the instances, those of the picture left out; return the lines to them. */
function neighbours(drawn, { type, number, links }) {
  const from = drawn.nodes.filter((node) => node.type === type && node.number === number);
  const there = new Set(drawn.nodes.map((node) => `${node.type}:${node.number}`));
  const ends = new Map(links.flatMap((group) => group.nodes).map((node) => [`${node.type}:${node.number}`, node]));
  const more = [...ends].filter(([key]) => !there.has(key)).slice(0, NEAR).map(([key, node], i) => ({
    key: `near:${key}`, position: i % drawn.heads.length, title: node.name, type: node.type, number: node.number, through: [], near: true,
    x: drawn.heads[i % drawn.heads.length].x - drawn.box / 2, y: drawn.height + ROW * (0.6 + Math.floor(i / drawn.heads.length)),
  }));
  drawn.height += ROW * Math.ceil(more.length / drawn.heads.length) + (more.length ? 8 : 0);
  drawn.nodes.push(...more);
  return from.length ? more.map((to) => ({ from: from[0], to, below: true })) : [];
}

/** Say what the expanded node is linked to, with a way to its page and a way back. */
function opened({ name: title, type, number, links }, href) {
  const total = links.reduce((sum, group) => sum + group.count, 0), address = href(type, number);
  return h("p.opened", {}, address ? h("a", { href: address }, name(title)) : name(title), ` has ${count(total)} ${total === 1 ? "link" : "links"}; the picture adds up to ${NEAR} of its neighbours. `,
    h("button", { type: "button", id: "collapse", onclick: () => change({ expand: null }) }, "Hide them"));
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

function curve(link, drawn, shown) {
  const all = link.through.map((i) => shown[i]);
  const attention = all.reduce((sum, one) => sum + one.attention, 0);
  const move = all.reduce((sum, one) => sum + one.move, 0);
  const most = Math.max(...shown.map((one) => Math.abs(one.move)), 1e-9);
  const kind = move > 0 ? "for" : move < 0 ? "against" : "neutral";
  const path = s(`path.link.${kind}`, {
    d: bend(link, drawn), "stroke-width": (1.5 + 26 * Math.min(0.5, attention)).toFixed(1),
    "stroke-opacity": (0.35 + 0.65 * Math.min(1, Math.abs(move) / most)).toFixed(2), "data-through": link.through.join(" "),
  });
  path.link = link;
  return path;
}

function bend({ from, to, below }, { box }) {
  if (below) return `M ${from.x + box / 2} ${from.y + BOX / 2} C ${from.x + box / 2} ${to.y - ROW} ${to.x + box / 2} ${to.y - ROW} ${to.x + box / 2} ${to.y - BOX / 2}`;
  const x = from.x + box, half = (to.x - x) / 2;
  return `M ${x} ${from.y} C ${x + half} ${from.y} ${to.x - half} ${to.y} ${to.x} ${to.y}`;
}

function box(node, drawn, { href, pick, expands, expanded, metapath }) {
  const own = node.near || (node.position > 0 && node.title !== "itself");
  const address = own && (node.near || !expands) ? href(node.type, node.number) : null, expandable = own && expands && !node.near;
  const open = expandable && expanded?.type === node.type && expanded.number === node.number;
  const words = `${plain(node.title)}, ${plain(node.type)}${address ? ": open" : expandable ? `: ${open ? "hide" : "show"} neighbours` : ""}`;
  const attributes = { "data-through": node.through.join(" "), "data-key": node.key, tabindex: -1 };
  const element = address ? s("a.node.target", { ...attributes, href: address })
    : s("g.node", expandable ? { ...attributes, id: `path-${metapath}-${node.key}`, role: "button", "aria-label": words, "aria-expanded": String(open) } : { ...attributes, role: "img" });
  if (node.position === 0 && !node.near) element.classList.add("root");
  if (node.near) element.classList.add("near");
  if (expandable) {
    element.classList.add("target");
    const toggle = () => change({ expand: open ? null : [metapath, node.type, node.number].join("|") });
    element.addEventListener("click", (event) => event.defaultPrevented || toggle());
    element.addEventListener("keydown", (event) => ["Enter", " "].includes(event.key) && (event.preventDefault(), toggle()));
  }
  element.append(s("title", {}, words),
    s("rect", { width: drawn.box, height: BOX, y: -BOX / 2, rx: 8 }),
    s("text", { x: drawn.box / 2, y: 5, "text-anchor": "middle" }, fit(plain(node.title), drawn.box - 14)));
  element.setAttribute("transform", `translate(${node.x} ${node.y})`);
  element.node = node;
  if (node.near) return element;
  for (const event of ["pointerenter", "focus"]) element.addEventListener(event, () => pick(element.dataset.through.split(" ")));
  for (const event of ["pointerleave", "blur"]) element.addEventListener(event, () => pick(null));
  return element;
}

/** One tab stop for the whole picture; arrow keys move between its nodes. */
function roving(nodes) {
  if (nodes.length) nodes[0].setAttribute("tabindex", 0);
  for (const element of nodes) {
    element.addEventListener("keydown", (event) => {
      const towards = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
      if (!towards) return;
      event.preventDefault();
      const next = nearest(nodes, element.node, towards);
      if (!next) return;
      for (const other of nodes) other.setAttribute("tabindex", other === next ? 0 : -1);
      next.focus();
    });
  }
}

function nearest(nodes, here, [across, down]) {
  const ahead = nodes.filter(({ node }) => (across ? Math.sign(node.position - here.position) === across : node.position === here.position && Math.sign(node.y - here.y) === down));
  const far = ({ node }) => Math.abs(node.position - here.position) * 10000 + Math.abs(node.y - here.y);
  return ahead.sort((a, b) => far(a) - far(b))[0];
}

function panning(picture, view, place) {
  picture.addEventListener("pointerdown", (event) => {
    if (event.target !== picture) return;
    const start = { x: event.clientX - view.x, y: event.clientY - view.y };
    picture.setPointerCapture(event.pointerId);
    const move = (now) => {
      Object.assign(view, { x: now.clientX - start.x, y: now.clientY - start.y });
      place();
    };
    picture.addEventListener("pointermove", move);
    for (const end of ["pointerup", "pointercancel"]) picture.addEventListener(end, () => picture.removeEventListener("pointermove", move), { once: true });
  });
}

function dragging(drawn, links, nodes, view) {
  for (const element of nodes) {
    const { node } = element;
    element.addEventListener("dragstart", (event) => event.preventDefault());
    element.addEventListener("pointerdown", (event) => {
      const start = { x: event.clientX, y: event.clientY, left: node.x, top: node.y };
      let dragged = false;
      const move = (now) => {
        const dx = (now.clientX - start.x) / view.scale, dy = (now.clientY - start.y) / view.scale;
        if (!dragged && Math.hypot(dx, dy) < 5) return;
        dragged = true;
        element.setPointerCapture(event.pointerId);
        Object.assign(node, { x: start.left + dx, y: start.top + dy });
        view.moved.set(node.key, { x: node.x, y: node.y });
        element.setAttribute("transform", `translate(${node.x} ${node.y})`);
        for (const path of links) if (path.link.from === node || path.link.to === node) path.setAttribute("d", bend(path.link, drawn));
      };
      const end = () => {
        element.removeEventListener("pointermove", move);
        if (dragged) element.addEventListener("click", (click) => click.preventDefault(), { once: true, capture: true });
      };
      element.addEventListener("pointermove", move);
      for (const stop of ["pointerup", "pointercancel"]) element.addEventListener(stop, end, { once: true });
    });
  }
}
