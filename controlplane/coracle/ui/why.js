// Why an object is not well: what the server's table says, and the root cause, which only the proxy of `coracle ui` can tell.

import { explains, get } from "./api.js";
import { html, show } from "./dom.js";
import { cell } from "./store.js";

const SETTLED = new Set(["Running", "Completed", "Succeeded"]);
/** How long the proxy keeps an answer, in milliseconds: it is the same until then. */
const KEPT = 5000;
/** Events tell more about an object that does not change: then it is asked about again when the page is drawn. */
const RENEWED = 60_000;

/** A problem of an object by the server's table: how bad it is, and what. */
export function problem(store, item) {
  const status = String(cell(store, item, "Status") ?? "");
  const [ready, wanted] = String(cell(store, item, "Ready") ?? "").split("/").map(Number);
  switch (item.kind.name) {
    case "Node":
      return status.startsWith("Ready") ? undefined : [0, `node is ${status}`];
    case "Pod":
      if (item.deleting) return undefined;
      if (status === "Completed" || status === "Succeeded") return undefined;
      if (!SETTLED.has(status)) return [/Error|BackOff|Failed|Evicted|OOM/i.test(status) ? 1 : 3, status];
      return ready < wanted ? [2, `${ready} of ${wanted} containers are ready`] : undefined;
    case "Deployment":
    case "StatefulSet":
      return ready < wanted ? [2, `${ready} of ${wanted} pods are ready`] : undefined;
    case "PersistentVolumeClaim":
      return status === "Bound" ? undefined : [3, `claim is ${status}`];
    default:
      return undefined;
  }
}

/** Root causes of the objects that are wanted, asked for one after the other; `changed` is called after each answer. */
export class Causes {
  constructor(changed) {
    this.changed = changed;
    this.abort = new AbortController();
    this.answers = new Map();
    this.wanted = [];
    this.busy = false;
    this.timer = undefined;
  }

  /** The last answer about an object, of which `report` is missing if it failed. */
  of(item) {
    return this.answers.get(item.uid);
  }

  /** The root cause of an object in a sentence. */
  sentence(item) {
    return this.of(item)?.report?.findings[0]?.cause.split("\n", 1)[0];
  }

  /** Asks about these objects, the first ones first, as far as the answers are not known yet or may be others now. */
  async want(items) {
    this.wanted = items;
    if (this.busy || !explains()) return;
    this.busy = true;
    clearTimeout(this.timer);
    while (!this.abort.signal.aborted) {
      const [item, wait] = this.next();
      if (!(wait > 0)) {
        await this.ask(item);
        continue;
      }
      if (wait <= KEPT) this.timer = setTimeout(() => this.want(this.wanted), wait);
      break;
    }
    this.busy = false;
  }

  /** The object to ask about next, and in how many milliseconds. */
  next() {
    let [found, soonest] = [undefined, Infinity];
    for (const item of this.wanted) {
      const known = this.of(item);
      const wait = known ? known.at + (known.version === item.version ? RENEWED : KEPT) - performance.now() : 0;
      if (wait < soonest) [found, soonest] = [item, wait];
      if (wait <= 0) break;
    }
    return [found, soonest];
  }

  async ask(item) {
    const query = new URLSearchParams({ resource: item.kind.resource, namespace: item.namespace, name: item.name });
    const answer = { version: item.version, report: this.of(item)?.report };
    try {
      answer.report = await get(`coracle/v1/why?${query}`, { signal: this.abort.signal });
    } catch (error) {
      // The object is gone, or the proxy: what was known stays.
      answer.error = error.message;
    }
    answer.at = performance.now();
    this.answers.set(item.uid, answer);
    if (!this.abort.signal.aborted) this.changed();
  }

  close() {
    this.abort.abort();
    clearTimeout(this.timer);
  }
}

/** An element that explains an object that is not well to people, also those who do not see the page. */
export class Explanation {
  constructor() {
    this.element = html("div", { class: "causes", "aria-live": "polite" });
    this.shown = undefined;
  }

  /** Shows the answer about an object, or nothing without one. */
  show(item, causes) {
    const answer = item && explains() ? causes.of(item) ?? { pending: true } : undefined;
    // What is shown already must not be read out again.
    const text = JSON.stringify([item?.uid, answer?.pending, answer?.error, answer?.report?.findings, answer?.report?.notLookedAt]);
    if (text === this.shown) return;
    this.shown = text;
    show(this.element, answer && html("section", { "aria-label": "Root cause" }, paragraphs(item, answer)));
  }
}

function paragraphs(item, { pending, report, error }) {
  const title = html("h3", {}, `Root cause: ${item.kind.name} ${item.name}`);
  if (pending) return [title, html("p", { class: "quiet" }, "It is being looked for.")];
  if (!report) return [title, html("p", { class: "warn" }, `It could not be looked for: ${error}`)];
  const found = report.findings.map(finding);
  if (!found.length) found.push(html("p", {}, "No root cause was found."));
  if (report.notLookedAt.length) found.push(html("p", { class: "quiet" }, `Not looked at: ${report.notLookedAt.join("; ")}`));
  return [title, ...found];
}

const reference = ({ kind, namespace, name }) => `${kind} ${namespace ? `${namespace}/` : ""}${name}`;

/** One cause with its evidence and its remedy. */
function finding({ object, cause, since, evidence, remedy, via = [], others = [] }) {
  const row = (name, texts) => texts.length > 0 && html("div", {}, html("dt", {}, name), texts.map((text) => html("dd", {}, text)));
  return html("div", {},
    html("p", { class: "bad" }, cause),
    html("dl", {},
      row("Object", [reference(object)]),
      row("Since", since ? [since] : []),
      row("Evidence", evidence.map(({ what, text }) => `${what}: ${text}`)),
      row("Remedy", remedy ? [remedy] : []),
      row("Via", via.length ? [[...via, object].map(reference).join(" → ")] : []),
      row("Also", others.map(reference))));
}
