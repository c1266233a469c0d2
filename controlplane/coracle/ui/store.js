// Objects that the page knows: metadata and the columns of the server's table.

import { KINDS, SHOWN } from "./kinds.js";
import { Refusal, list, one, pause, watch } from "./api.js";

/** How long indexing may hold up the page at a time, in milliseconds. */
const SLICE = 5;
const RELIST = 60_000;
/** How often an object is read whose kind may not be listed, in milliseconds. */
const REREAD = 2000;

export class Store {
  constructor() {
    this.items = new Map();
    this.byKind = new Map(SHOWN.map((kind) => [kind.resource, new Map()]));
    this.columns = new Map();
    this.refused = new Map();
    this.complete = new Set();
    this.listeners = new Set();
    this.watched = new Map();
    this.toIndex = [];
    this.scheduled = false;
    this.delay = 16;
  }

  /** Calls `listener` once per frame in which something changed, until the result is called. */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Objects of a kind, by uid. */
  of(kind) {
    return this.byKind.get(kind.resource);
  }

  /** An object by its name. */
  find(resource, namespace, name) {
    for (const item of this.byKind.get(resource)?.values() ?? []) {
      if (item.name === name && item.namespace === namespace) return item;
    }
    return undefined;
  }

  /** Lists all kinds, those of workloads first, two at a time, and again from time to time. */
  async start() {
    const waiting = [...KINDS];
    const worker = async () => {
      for (let kind = waiting.shift(); kind; kind = waiting.shift()) await this.load(kind);
    };
    for (;;) {
      await Promise.all([worker(), worker()]);
      await pause(RELIST);
      if (!document.hidden) waiting.push(...KINDS.filter((kind) => !this.watched.has(kind.resource)));
    }
  }

  /**
   * Lists a kind; returns the revision, or undefined if it is refused. Without a signal it is given up as soon as the kind is
   * watched: an answer from before the watch would bring back what the watch has removed.
   */
  async load(kind, signal) {
    const outdated = () => !signal && this.watched.has(kind.resource);
    if (outdated()) return undefined;
    const seen = new Set();
    try {
      const revision = await list(kind, (rows, columns) => {
        if (outdated()) throw new Refusal(0, "watched now");
        this.columns.set(kind.resource, columns);
        for (const row of rows) seen.add(this.put(kind, row));
      }, signal);
      for (const uid of this.of(kind).keys()) if (!seen.has(uid)) this.remove(kind, uid);
      this.refused.delete(kind.resource);
      this.complete.add(kind.resource);
      this.changed();
      return revision;
    } catch (error) {
      if (signal?.aborted || outdated()) return undefined;
      this.refused.set(kind.resource, error);
      this.complete.add(kind.resource);
      this.changed();
      return undefined;
    }
  }

  /** Keeps a kind up to date until the result is called. Browsers have few connections per server: only what is shown is watched. */
  follow(kind) {
    const known = this.watched.get(kind.resource);
    if (known) {
      known.users += 1;
    } else {
      const abort = new AbortController();
      this.watched.set(kind.resource, { users: 1, abort });
      this.run(kind, abort.signal);
    }
    return () => {
      const entry = this.watched.get(kind.resource);
      if (!entry) return;
      entry.users -= 1;
      if (entry.users > 0) return;
      this.watched.delete(kind.resource);
      entry.abort.abort();
    };
  }

  /** Reads an object if its kind may not be listed, from time to time until the result is called: it may be read all the same. */
  followOne(kind, namespace, name) {
    const abort = new AbortController();
    const forget = () => {
      const known = this.find(kind.resource, namespace, name);
      if (known) this.remove(kind, known.uid);
    };
    (async () => {
      while (!abort.signal.aborted) {
        if (this.refused.has(kind.resource)) await this.readOne(kind, namespace, name, abort.signal, forget);
        await pause(REREAD, abort.signal);
      }
      if (this.refused.has(kind.resource)) forget();
    })();
    return () => abort.abort();
  }

  async readOne(kind, namespace, name, signal, forget) {
    try {
      const { rows, columnDefinitions } = await one(kind, namespace, name, signal);
      if (signal.aborted) return;
      this.columns.set(kind.resource, columnDefinitions ?? []);
      for (const row of rows ?? []) {
        if (this.find(kind.resource, namespace, name)?.version !== row.object.metadata.resourceVersion) this.put(kind, row);
      }
    } catch (error) {
      if (!signal.aborted && [403, 404].includes(error.code)) forget();
    }
  }

  async run(kind, signal) {
    let revision;
    while (!signal.aborted) {
      revision ??= await this.load(kind, signal);
      try {
        if (revision === undefined) throw new Refusal(0, "not listed");
        revision = await watch(kind, revision, (type, rows, columns) => this.event(kind, type, rows, columns), signal);
      } catch (error) {
        if (signal.aborted) return;
        // Too old a revision, or a server that is away: all of it again.
        revision = undefined;
        await pause(error.code === 410 ? 0 : error.code === 403 ? RELIST : 2000, signal);
      }
    }
  }

  event(kind, type, rows, columns) {
    if (columns.length) this.columns.set(kind.resource, columns);
    for (const row of rows) {
      if (type === "DELETED") this.remove(kind, row.object.metadata.uid);
      else this.put(kind, row);
    }
    this.changed();
  }

  put(kind, row) {
    const meta = row.object.metadata;
    const item = {
      kind,
      uid: meta.uid,
      version: meta.resourceVersion,
      name: meta.name,
      namespace: meta.namespace ?? "",
      place: `${meta.namespace ?? ""}/${meta.name}`,
      labels: meta.labels ?? {},
      owners: meta.ownerReferences ?? [],
      created: meta.creationTimestamp,
      deleting: Boolean(meta.deletionTimestamp),
      cells: row.cells ?? [],
      words: undefined,
    };
    this.items.set(item.uid, item);
    this.of(kind).set(item.uid, item);
    this.toIndex.push(item);
    this.changed();
    return item.uid;
  }

  remove(kind, uid) {
    this.items.delete(uid);
    this.of(kind).delete(uid);
    this.changed();
  }

  changed() {
    if (this.scheduled) return;
    this.scheduled = true;
    // Also when the page is hidden, which has no frames.
    setTimeout(() => {
      this.scheduled = false;
      const begun = performance.now();
      this.index();
      for (const listener of [...this.listeners]) listener();
      // Drawing has a fifth of the time at most.
      this.delay = Math.max(16, (performance.now() - begun) * 4);
    }, this.delay);
  }

  index() {
    const until = performance.now() + SLICE;
    while (this.toIndex.length && performance.now() < until) {
      for (const item of this.toIndex.splice(-100)) item.words = words(item);
    }
    if (this.toIndex.length) this.changed();
  }

  /** Objects that have all words of a query, those whose name begins with it first. */
  search(query, most = 1000) {
    const wanted = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!wanted.length) return [];
    const found = [];
    for (const item of this.items.values()) {
      const text = item.words ?? words(item);
      if (wanted.every((word) => text.includes(word))) found.push(item);
    }
    const rank = (item) => (item.name.startsWith(wanted[0]) ? 0 : 1);
    found.sort((a, b) => rank(a) - rank(b) || (a.place < b.place ? -1 : 1));
    return found.slice(0, most);
  }

  /** What each object owns, by uid, in the order of their names. */
  owned() {
    const owned = new Map();
    for (const item of this.items.values()) {
      for (const uid of new Set(item.owners.map((owner) => owner.uid))) {
        const others = owned.get(uid);
        if (others) others.push(item);
        else owned.set(uid, [item]);
      }
    }
    for (const items of owned.values()) items.sort((a, b) => (a.name < b.name ? -1 : 1));
    return owned;
  }
}

function words(item) {
  const labels = Object.entries(item.labels).map(([key, value]) => `${key}=${value}`);
  return [item.kind.name, item.kind.resource, item.namespace, item.name, item.uid, ...labels].join(" ").toLowerCase();
}

/** A cell of an object by the name of its column. */
export function cell(store, item, name) {
  const columns = store.columns.get(item.kind.resource) ?? [];
  const at = columns.findIndex((column) => column.name === name);
  return at < 0 ? undefined : item.cells[at];
}
