// Ask the server. What it has answered about a run is kept: a run does not change while it is served.
import { written } from "./address.js";

const KEPT = 200;
const answers = new Map();

/** Ask for JSON. Throws an Error with the server's one line; a signal that is aborted stops the work. */
export async function ask(path, { signal, body } = {}) {
  const key = path + (body ? JSON.stringify(body) : "");
  if (answers.has(key)) return answers.get(key);
  const answer = await request(path, signal, body);
  answers.set(key, answer);
  if (answers.size > KEPT) answers.delete(answers.keys().next().value);
  return answer;
}

async function request(path, signal, body) {
  const text = typeof body === "string" || body instanceof Blob;
  const post = body && { method: "POST", headers: { "Content-Type": text ? "text/csv" : "application/json" }, body: text ? body : JSON.stringify(body) };
  let response;
  try {
    response = await fetch(`api/v1/${path}`, { signal, ...post });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is hanme serve still running?");
  }
  if (response.status === 429 || response.status === 503) {
    await new Promise((resolve) => setTimeout(resolve, 1000 * Number(response.headers.get("Retry-After") ?? 1)));
    signal?.throwIfAborted();
    response = await fetch(`api/v1/${path}`, { signal, ...post });
  }
  if (response.ok) return response.json();
  const said = await response.json().catch(() => ({}));
  throw new Error(said.error ?? `The server answered with status ${response.status}.`);
}

/** Ask for what changes: reviews, and runs in training. With a body, it is sent. */
export function askAnew(path, { signal, body } = {}) {
  return request(path, signal, body);
}

/** Write a path of the API; parts are escaped, and empty parameters are left out. */
export function path(parts, query = {}) {
  return parts.map(encodeURIComponent).join("/") + written(query);
}
