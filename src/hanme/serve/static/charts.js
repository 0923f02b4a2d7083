// Small charts as SVG. Bars stretch with their place; the others keep their size and shrink where there is less room.
import { count, cut, h, percent, plain, s } from "./dom.js";

const draw = (width, height, ...children) =>
  s("svg.chart", { viewBox: `0 0 ${width} ${height}`, width, height }, ...children);
const text = (x, y, words, extra = {}) => s("text", { x, y, ...extra }, words);
const line = (x1, y1, x2, y2, kind) => s(`line.${kind}`, { x1, y1, x2, y2 });
const round = (value) => Math.round(value * 10) / 10;
const label = (x, y, words, room, extra = {}) => text(x, y, [s("title", {}, cut(words, 300)), fit(plain(words), room)], extra);
const pen = document.createElement("canvas").getContext("2d");

function widthOf(words) {
  pen.font = "13px system-ui, sans-serif";
  return pen.measureText(words.slice(0, 200)).width;
}

/** Truncate a text to a width in pixels. */
export function fit(words, room) {
  let letters = [...words.slice(0, 200)];
  if (words.length === letters.length && widthOf(words) <= room) return words;
  while (letters.length > 1 && widthOf(`${letters.join("")}…`) > room) letters = letters.slice(0, -1);
  return `${letters.join("").trimEnd()}…`;
}

/** Values from 0 to `most` as bars with their intervals: rows of {name, value, low, high, kind, note}. */
export function bars(rows, { format = (v) => percent(v, 1), most = 1 } = {}) {
  const x = (v) => round((100 * Math.min(v, most)) / most);
  return h("div.bars", {}, rows.map((row) => [
    h("span.label", {}, cut(row.name, 80)),
    strip(
      s("rect.track", { width: 100, height: 18 }),
      s(`rect.bar.${row.kind ?? "plain"}`, { width: x(row.value ?? 0), height: 18 }),
      known(row.low) && [line(x(row.low), 9, x(row.high), 9, "interval"), line(x(row.low), 4, x(row.low), 14, "interval"), line(x(row.high), 4, x(row.high), 14, "interval")]),
    h("span.value", {}, known(row.value) ? format(row.value) : "–", row.note && h("small", {}, row.note))]));
}

/** A step from one probability to another, on a scale from 0 to 1. */
export function fromTo(from, end, kind) {
  const [low, high] = [Math.min(from, end), Math.max(from, end)].map((p) => round(100 * p));
  return h("span.step", { "aria-hidden": "true" }, strip(s("rect.track", { width: 100, height: 18 }), s(`rect.bar.${kind}`, { x: low, width: Math.max(0.8, high - low), height: 18 })));
}

const known = (value) => value !== null && value !== undefined;
const strip = (...children) => s("svg.strip", { viewBox: "0 0 100 18", preserveAspectRatio: "none" }, ...children);

/** Lines over a common x: series of {name, kind, points: [[x, y], ...]}; y from 0 to 1. */
export function lines(series, { marked = null } = {}) {
  const width = 460, height = 220;
  const left = 44, right = width - 12, top = 10, bottom = height - 34;
  const xs = series.flatMap((one) => one.points.map(([x]) => x));
  const first = Math.min(...xs), last = Math.max(...xs);
  const x = (v) => round(left + ((right - left) * (v - first)) / Math.max(1e-9, last - first));
  const y = (v) => round(bottom - (bottom - top) * v);
  return draw(width, height,
    [0, 0.25, 0.5, 0.75, 1].map((v) => [line(left, y(v), right, y(v), "grid"), text(left - 6, y(v) + 4, percent(v), { "text-anchor": "end", class: "tick" })]),
    [first, last].map((v, i) => text(x(v), bottom + 16, `epoch ${count(v)}`, { "text-anchor": i ? "end" : "start", class: "tick" })),
    marked !== null && [line(x(marked), top, x(marked), bottom, "mark"), text(x(marked), bottom + 30, `chosen: ${marked}`, { "text-anchor": x(marked) > width / 2 ? "end" : "start", class: "tick" })],
    series.map((one) => s(`polyline.line.${one.kind}`, { points: one.points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") })));
}

/** How often labels were there (y) against how likely they were said to be (x): bins of [count, said, seen]. */
export function reliability(bins) {
  const width = 300, left = 44, top = 8, side = width - left - 12, bottom = top + side;
  const x = (v) => round(left + side * v), y = (v) => round(bottom - side * v);
  const most = Math.max(1, ...bins.map(([n]) => n));
  return draw(width, bottom + 38,
    [0, 0.5, 1].map((v) => [line(left, y(v), left + side, y(v), "grid"), text(left - 6, y(v) + 4, percent(v), { "text-anchor": "end", class: "tick" }),
      text(x(v), bottom + 16, percent(v), { "text-anchor": v === 0 ? "start" : v === 1 ? "end" : "middle", class: "tick" })]),
    line(x(0), y(0), x(1), y(1), "mark"),
    s("polyline.line.model.faded", { points: bins.map(([, a, b]) => `${x(a)},${y(b)}`).join(" ") }),
    bins.map(([n, a, b]) => s("circle.dot", { cx: x(a), cy: y(b), r: round(3 + 5 * Math.sqrt(n / most)) }, s("title", {}, `${count(n)} predictions: said ${percent(a)}, true ${percent(b)}`))),
    text(left + side / 2, bottom + 34, "the model says", { "text-anchor": "middle", class: "tick" }));
}

/** Counts by true (rows) and predicted label (columns) as shaded squares. */
export function matrix(labels, counts) {
  const side = labels.length > 8 ? 30 : 46, longest = Math.max(...labels.map((name) => widthOf(plain(name))));
  const room = Math.min(130, longest + 14), head = Math.min(100, 0.82 * longest + 20);
  const width = room + side * labels.length + 62;
  const largest = Math.max(1, ...counts.flat());
  return draw(width, head + side * labels.length + 4,
    labels.map((name, i) => [
      label(room - 8, head + side * (i + 0.5) + 4, name, room - 10, { "text-anchor": "end" }),
      label(0, 0, name, 108, { transform: `translate(${room + side * (i + 0.5) + 4} ${head - 8}) rotate(-55)` }),
    ]),
    counts.map((row, i) => row.map((n, j) => s("g", {},
      s(`rect.cell.${i === j ? "right" : "wrong"}`, { x: room + side * j, y: head + side * i, width: side - 2, height: side - 2, rx: 4, "fill-opacity": round(100 * (0.06 + 0.6 * n / largest)) / 100 }),
      n > 0 && text(room + side * (j + 0.5) - 1, head + side * (i + 0.5) + 3, count(n), { "text-anchor": "middle" })))));
}
