// Why a pod is on its node, or on none: verdicts of the scheduler.

import { text } from "./api.js";
import { html, show } from "./dom.js";

/** A view of what the scheduler says about a pod; `trace` is its timeline, if there is one. */
export function verdicts(namespace, name, trace) {
  const abort = new AbortController();
  const found = (trace?.spans ?? []).filter((span) => span.stage === "verdict");
  const element = html("div", {}, found.map((span) => html("p", {}, html("strong", { class: span.flags.includes("failed") ? "bad" : "good" }, span.name), ` ${span.text}`)));
  if (!found.length) {
    show(element, html("p", { class: "quiet" }, "The timeline has no verdict of the scheduler."));
    text(`debug/scheduler/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, { accept: "*/*", signal: abort.signal })
      .then((reasons) => show(element, html("pre", { class: "log", tabindex: 0 }, reasons)))
      .catch(() => undefined);
  }
  return { element, close: () => abort.abort() };
}
