// Build elements. Text is only ever text: nothing here parses HTML, so no name can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** Make an HTML element: h("a.button", {href, onclick}, "text", otherElement, ...). */
export function h(tag, attributes = {}, ...children) {
  return make(document.createElement(tag.split(".")[0]), tag, attributes, children);
}

/** Make an SVG element in the same way. */
export function s(tag, attributes = {}, ...children) {
  return make(document.createElementNS(SVG, tag.split(".")[0]), tag, attributes, children);
}

function make(element, tag, attributes, children) {
  const classes = tag.split(".").slice(1);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...shown(children));
  return element;
}

/** Replace what is in an element; as in h, null, undefined and false are left out. */
export function fill(element, ...children) {
  element.replaceChildren(...shown(children));
}

const shown = (children) => children.flat(4).filter((child) => child !== null && child !== undefined && child !== false).map(readable);

/** Keep an element; show everything else as text without what could turn the direction of writing. */
function readable(child) {
  return child instanceof Node ? child : plain(String(child));
}

/** Replace control characters and those that turn the direction of the text around them. */
export function plain(text) {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\u2028\u2029]/g, "\ufffd");
}

/** Show a name in its own direction, cut by the style sheet where it does not fit, whole in its title. */
export function name(text, tag = "bdi.name") {
  const shown = text === "" ? "(no name)" : text;
  const parts = cut(shown, 300).split(/(?<=[/_])/); // a line may break after these
  return h(tag, { title: shown.length > 24 ? plain(shown).slice(0, 500) : null }, parts.map((part, i) => [i > 0 && h("wbr"), part]));
}

/** Truncate a text to a number of characters. */
export function cut(text, length) {
  const letters = [...text];
  return letters.length > length ? letters.slice(0, length - 1).join("").trimEnd() + "…" : text;
}

export const percent = (value, digits = 0) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`);
export const signed = (value, digits = 2) => {
  const text = Math.abs(value).toFixed(digits);
  return Number(text) === 0 ? text : (value < 0 ? "−" : "+") + text;
};
export const count = (value) => value.toLocaleString("en");

/** Return "1 film" or "3 films". */
export const some = (number, noun) => `${count(number)} ${number === 1 ? noun : plural(noun)}`;

/** Return "a film" or "an actor". */
export const a = (noun) => `${/^[aeiou]/i.test(noun) ? "an" : "a"} ${noun}`;

/** What people call one node of a type, and several, by type. */
export const nouns = new Map();

/** Return "films" for "film", and for "films", too: types are called what the user calls them. */
export function plural(noun) {
  if (nouns.has(noun)) return nouns.get(noun)[1];
  if (/(ss|us|x|ch|sh)$/.test(noun)) return `${noun}es`;
  if (/s$/.test(noun)) return noun;
  return /[^aeiou]y$/.test(noun) ? `${noun.slice(0, -1)}ies` : `${noun}s`;
}

/** A table with a caption that screen readers read; cells are text or elements, numbers go right. On phones, rows of `cards` become cards. */
export function table(caption, heads, rows, { numeric = [], hidden = false, sortable = null, cards = false } = {}) {
  const role = (name) => (cards ? name : null); // a style sheet that turns rows into cards would take them away
  const head = heads.map((title, i) =>
    h(numeric.includes(i) ? "th.number" : "th", { scope: "col", role: role("columnheader"), "aria-sort": sortable?.order(i) }, sortable?.head(title, i) ?? title),
  );
  const body = rows.map((row) =>
    h("tr", { role: role("row") }, row.map((cell, i) => (i === 0 ? h("th", { scope: "row", role: role("rowheader") }, cell)
      : h(numeric.includes(i) ? "td.number" : "td", { role: role("cell"), "data-head": cards ? heads[i] : null }, cell)))),
  );
  return h("div.scroll", { tabindex: 0, role: "group", "aria-label": caption },
    h(cards ? "table.cards" : "table", { role: role("table") }, h(hidden ? "caption.unseen" : "caption", {}, caption),
      h("thead", { role: role("rowgroup") }, h("tr", { role: role("row") }, head)), h("tbody", { role: role("rowgroup") }, body)));
}

/** Charts of fewer rows than this would show chance. */
export const FEW = 10;

/** A picture of how `rows` rows did, or, where these are few, the numbers alone. */
export function chart(rows, title, picture, numbers, note = null) {
  return rows >= FEW ? figure(title, picture(), numbers, note) : h("div", {}, h("p.hint", {}, `Fewer than ${FEW} rows: too few for a chart.`), numbers);
}

/** Write a number of a table as people say it: 107 million; short ones stay as they are. */
export function amount(text) {
  const value = Number(text);
  if (!Number.isFinite(value) || Math.abs(value) < 1e6) return text;
  const [size, unit] = [[1e12, "trillion"], [1e9, "billion"], [1e6, "million"]].find(([least]) => Math.abs(value) >= least);
  return `${Number((value / size).toPrecision(3))} ${unit}`;
}

/** A picture with the same numbers as a table for those who do not see it, or want the numbers. */
export function figure(title, picture, numbers, note = null) {
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", title);
  return h("figure", {}, picture, note && h("figcaption", {}, note),
    h("details.numbers", {}, h("summary", {}, "Show as a table", h("span.unseen", {}, `: ${title}`)), numbers));
}

/** A bar with a part for each [tag, share from 0 to 1]; the number stands beside it. */
export function meter(tag, shares) {
  return h(tag, { "aria-hidden": "true" }, shares.filter(Boolean).map(([kind, share]) => {
    const part = h(kind);
    part.style.setProperty("--share", share);
    return part;
  }));
}

/** A titled part of a page. */
export function section(title, about, ...children) {
  return h("section.card", {}, h("h2", {}, title), about && h("p.about", {}, about), ...children);
}
