// Requests to the server that the page is from. Addresses are relative: a proxy may have the server below another path.

const BASE = new URL("../", import.meta.url);
const TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const PAGE = 500;

let proxied = false;

/** Whether root causes can be asked for: the proxy of `coracle ui` says so with every answer, servers themselves have none. */
export const explains = () => proxied;

/** An answer that is no success. */
export class Refusal extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

async function open(path, { accept = "application/json", signal } = {}) {
  const response = await fetch(new URL(path, BASE), { headers: { accept }, signal, credentials: "same-origin", redirect: "error" });
  proxied ||= response.headers.get("coracle-proxy") === "why";
  if (response.ok) return response;
  let message = `${response.status} ${response.statusText}`;
  try {
    message = (await response.json()).message || message;
  } catch {
    // Not every refusal is a Status.
  }
  throw new Refusal(response.status, message);
}

/** JSON of a path. */
export async function get(path, options) {
  return (await open(path, options)).json();
}

/** Text of a path. */
export async function text(path, options) {
  return (await open(path, options)).text();
}

/** Lists a kind page by page as the server's table; returns the revision of the list. */
export async function list(kind, each, signal) {
  let next = "";
  let columns = [];
  for (;;) {
    const query = new URLSearchParams({ limit: PAGE, includeObject: "Metadata" });
    if (next) query.set("continue", next);
    const page = await get(`${kind.path}/${kind.plural}?${query}`, { accept: TABLE, signal });
    columns = page.columnDefinitions ?? columns;
    each(page.rows ?? [], columns);
    next = page.metadata?.continue;
    if (!next) return page.metadata?.resourceVersion;
  }
}

/** One object as the server's table. */
export async function one(kind, namespace, name, signal) {
  const within = namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  return get(`${kind.path}${within}/${kind.plural}/${encodeURIComponent(name)}?includeObject=Metadata`, { accept: TABLE, signal });
}

/** Calls `each` with the JSON of every line of a body that goes on. */
export async function lines(path, each, options) {
  await stream(path, (line) => line && each(JSON.parse(line)), options);
}

/** Calls `each` with every line of a body that goes on. */
export async function stream(path, each, options) {
  const response = await open(path, options);
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
    const found = rest.split("\n");
    rest = found.pop();
    for (const line of found) each(line);
    if (done) {
      if (rest) each(rest);
      return;
    }
  }
}

/** Watches a kind from a revision on until it is aborted or the server ends it. Events are (type, rows, columns). */
export async function watch(kind, revision, each, signal) {
  const query = new URLSearchParams({ watch: "true", resourceVersion: revision, allowWatchBookmarks: "true", includeObject: "Metadata", timeoutSeconds: "300" });
  let newest = revision;
  let columns = [];
  await lines(`${kind.path}/${kind.plural}?${query}`, ({ type, object }) => {
    if (type === "ERROR") throw new Refusal(object.code ?? 500, object.message ?? "the watch failed");
    columns = object.columnDefinitions ?? columns;
    const rows = object.rows ?? [];
    newest = object.metadata?.resourceVersion || rows.at(-1)?.object?.metadata?.resourceVersion || newest;
    if (type !== "BOOKMARK") each(type, rows, columns);
  }, { accept: TABLE, signal });
  return newest;
}

/** Waits, unless it is aborted. */
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
