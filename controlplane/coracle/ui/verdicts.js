// Why a pod is on its node, or on none: verdicts of the scheduler.

import { text } from "./api.js";
import { html, show } from "./dom.js";

/** A view of what the scheduler says about a pod; `trace` is its timeline, if there is one. */
export function verdicts(namespace, name, trace) {
  const abort = new AbortController();
  const found = (trace?.spans ?? []).filter((span) => span.stage === "verdict");
  const element = html("div", {}, found.map((span) => span.flags.includes("failed") ? refusal(span) : choice(span)));
  if (!found.length) {
    show(element, html("p", { class: "quiet" }, "The timeline has no verdict of the scheduler."));
    text(`debug/scheduler/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, { accept: "*/*", signal: abort.signal })
      .then((reasons) => show(element, html("pre", { class: "log", tabindex: 0 }, reasons)))
      .catch(() => undefined);
  }
  return { element, close: () => abort.abort() };
}

/** A node that cannot run the pod, and why not. */
function refusal(span) {
  return html("p", {}, html("strong", { class: "bad" }, span.name), ` ${span.text}`);
}

/** The choice as the scheduler records it: `node-3=86 node-2=85 node-1=80 of 3`, scores from the chosen node down, of all nodes. */
function choice(span) {
  const [, scores, count] = span.name.match(/^(.*) of (\d+)$/) ?? [];
  if (!scores) return html("p", {}, html("strong", { class: "good" }, span.name), ` ${span.text}`);
  const [chosen, ...others] = scores.split(" ").map((score) => score.replace("=", ", score "));
  return html("div", {},
    html("p", {}, html("strong", { class: "good" }, `Placed on ${chosen}`)),
    others.length ? html("p", {}, `The next best: ${others.join("; ")}.`) : null,
    span.text ? html("p", {}, span.text) : null,
    html("p", { class: "quiet" }, count === "1" ? "The cluster had one node." : `The cluster had ${count} nodes.`));
}
