// Why an object is not well: what the server's table says, and the root cause, which only the proxy of `coracle ui` can tell.

import { explains, get, pause } from "./api.js";
import { html, show } from "./dom.js";
import { kindNamed, link } from "./kinds.js";
import { cell } from "./store.js";
import { age } from "./time.js";

const SETTLED = new Set(["Running", "Completed", "Succeeded"]);
/** How long the proxy keeps an answer, in milliseconds: it is the same until then. */
const KEPT = 5000;
/** What an object depends on changes although it does not. */
const RENEWED = 15_000;
/** An analysis of everything has this part of the time at most. */
const SHARE = 1 / 10;

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

/** Everything that is not well, as `coracle why -A` says it; `changed` is called after each answer. */
export class Survey {
  constructor(changed) {
    this.changed = changed;
    this.abort = new AbortController();
    this.report = undefined;
    this.error = undefined;
    this.begun = false;
  }

  /** Asks again and again, as soon as somebody is there to answer. */
  async start() {
    if (this.begun || !explains()) return;
    this.begun = true;
    const { signal } = this.abort;
    while (!signal.aborted) {
      const begun = performance.now();
      if (!document.hidden || !this.report) await this.ask(signal);
      await pause(Math.max(KEPT, (performance.now() - begun) / SHARE), signal);
    }
  }

  async ask(signal) {
    try {
      this.report = await get("coracle/v1/why", { signal });
      this.error = undefined;
    } catch (error) {
      this.error = error.message;
    }
    if (!signal.aborted) this.changed();
  }

  close() {
    this.abort.abort();
  }
}

/** The root cause of one object; `changed` is called after each answer. */
export class Cause {
  constructor(changed) {
    this.changed = changed;
    this.abort = new AbortController();
    this.item = undefined;
    /** The last answer, of which `report` is missing if it failed. */
    this.answer = undefined;
    this.busy = false;
    this.timer = undefined;
  }

  /** Causes that were found. */
  get findings() {
    return this.answer?.report?.findings ?? [];
  }

  /** Asks about an object, unless the answer can be no other yet. */
  async want(item) {
    this.item = item;
    if (this.busy || !item || !explains() || this.abort.signal.aborted) return;
    clearTimeout(this.timer);
    const { at = -Infinity, version } = this.answer ?? {};
    const wait = at + (version === item.version ? RENEWED : KEPT) - performance.now();
    if (wait > 0 || (document.hidden && this.answer)) {
      this.timer = setTimeout(() => this.want(this.item), Math.max(wait, KEPT));
      return;
    }
    this.busy = true;
    await this.ask(item);
    this.busy = false;
    if (!this.abort.signal.aborted) this.changed();
  }

  async ask(item) {
    const query = new URLSearchParams({ resource: item.kind.resource, namespace: item.namespace, name: item.name });
    const answer = { version: item.version, report: this.answer?.report };
    try {
      answer.report = await get(`coracle/v1/why?${query}`, { signal: this.abort.signal });
    } catch (error) {
      // The object is gone, or the proxy: what was known stays.
      answer.error = error.message;
    }
    answer.at = performance.now();
    this.answer = answer;
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

  /** Shows an answer about what is named, or nothing without one. */
  show(name, answer) {
    // What is shown already must not be read out again.
    const text = JSON.stringify([name, answer?.pending, answer?.error, answer?.report?.findings, answer?.report?.notLookedAt]);
    if (text === this.shown) return;
    this.shown = text;
    show(this.element, answer && html("section", { "aria-label": "Root cause" }, paragraphs(name, answer)));
  }
}

function paragraphs(name, { pending, report, error }) {
  const title = html("h3", {}, `Root cause: ${name}`);
  if (pending) return [title, html("p", { class: "quiet" }, "It is being looked for.")];
  if (!report) return [title, html("p", { class: "warn" }, `It could not be looked for: ${error}`)];
  const found = report.findings.map(finding);
  if (!found.length) found.push(html("p", {}, "No root cause was found."));
  return [title, ...found, notLookedAt(report)];
}

/** What could not be read, in words. */
export function notLookedAt({ notLookedAt: texts }) {
  return texts.length > 0 && html("p", { class: "quiet" }, `Not looked at: ${texts.join("; ")}`);
}

const text = ({ kind, namespace, name }) => `${kind} ${namespace ? `${namespace}/` : ""}${name}`;

/** A reference to an object, which is a link where there is a page of it. */
function reference(object) {
  const found = link(object.kind, object.namespace, object.name, text(object));
  if (kindNamed(object.kind)) found.removeAttribute("tabindex");
  return found;
}

/** One cause with its evidence and its remedy. */
function finding({ object, severity, cause, since, evidence, remedy, via = [], others = [] }) {
  const row = (name, values) => values.length > 0 && html("div", {}, html("dt", {}, name), values.map((value) => html("dd", {}, value)));
  const steps = [...via, object].flatMap((step, at) => (at ? [" → ", reference(step)] : [reference(step)]));
  return html("div", { class: `finding of-${severity}` },
    html("p", { class: severity }, html("span", { class: "hidden" }, `${severity}: `), cause),
    html("dl", {},
      row("Object", [reference(object)]),
      row("Since", since ? [`${since} (${age(since)} ago)`] : []),
      row("Evidence", evidence.map(({ what, text: said }) => `${what}: ${said}`)),
      row("Remedy", remedy ? [remedy] : []),
      row("Via", via.length ? [steps] : []),
      row("Also", others.map(reference))));
}
