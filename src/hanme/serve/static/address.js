// The address bar holds the state: #/RUN/VIEW/NODE?label=Drama. Views read it and write it, and nothing else remembers anything.

/** Read the address. */
export function here() {
  const [way, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [run = "", view = "overview", ...rest] = way.split("/").filter(Boolean).map(decode);
  return { run, view, rest, query: new URLSearchParams(query) };
}

/** Write an address for a link. */
export function to(run, view, rest = [], query = {}) {
  const way = [run, view, ...rest].map(encodeURIComponent).join("/");
  return `#/${way}${written(query)}`;
}

/** Write the address of a node: one that is classified has its reasons there, another one its links. */
export function nodeOf(run, type, number) {
  return type === run.target ? to(run.name, "node", [number]) : to(run.name, "other", [type, number]);
}

/** Go to the same view with some parameters changed; null removes one. */
export function change(parameters, options = {}) {
  const now = here();
  for (const [name, value] of Object.entries(parameters)) {
    now.query.delete(name);
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") now.query.append(name, one);
  }
  go(`#/${[now.run, now.view, ...now.rest].map(encodeURIComponent).join("/")}${written(now.query)}`, options);
}

let waiting = null;

/** Go to an address. The view follows after `wait` milliseconds without another change: somebody types. */
export function go(hash, { replace = false, wait = 0 } = {}) {
  if (hash === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", hash);
  clearTimeout(waiting);
  const follow = () => dispatchEvent(new HashChangeEvent("hashchange"));
  if (wait) waiting = setTimeout(follow, wait);
  else follow();
}

/** Write parameters, the empty ones left out. */
export function written(query) {
  const pairs = query instanceof URLSearchParams ? [...query] : Object.entries(query).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));
  const parameters = new URLSearchParams(pairs.filter(([, value]) => value !== null && value !== undefined && value !== ""));
  const text = parameters.toString();
  return text && `?${text}`;
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
