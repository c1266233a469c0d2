// One object: its state, why it is not well, timeline, owners, logs, events.

import { explains } from "./api.js";
import { html, show } from "./dom.js";
import { events } from "./events.js";
import { address, kindOf } from "./kinds.js";
import { logs } from "./logs.js";
import { owners } from "./map.js";
import { timeline } from "./timeline.js";
import { verdicts } from "./verdicts.js";
import { Cause, Explanation, problem } from "./why.js";

/** The view of an object with one of its tabs. */
export function objectView(store, resource, namespace, name, tab) {
  const kind = kindOf(resource);
  const item = () => store.find(resource, namespace, name);
  let waterfall;
  const tabs = [["timeline", "Timeline"]];
  if (kind) tabs.push(["map", "Owners"], ["events", "Events"]);
  if (resource === "pods") tabs.push(["logs", "Logs"], ["verdicts", "Scheduling"]);
  const chosen = tabs.some(([key]) => key === tab) ? tab : "timeline";
  const facts = html("dl", { class: "facts" });
  const panel = html("div", { role: "tabpanel", id: "panel", "aria-labelledby": `tab-${chosen}` });
  const go = (key) => { location.hash = address(resource, namespace, name, key); };
  const strip = html("div", { class: "tabs", role: "tablist", "aria-label": "Parts", onkeydown: (event) => move(event) },
    tabs.map(([key, text]) => html("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-selected": key === chosen, "aria-controls": "panel", tabindex: key === chosen ? 0 : -1, onclick: () => go(key) }, text)));

  function move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const at = tabs.findIndex(([key]) => key === chosen);
    go(tabs[(at + step + tabs.length) % tabs.length][0]);
  }

  const views = {
    timeline: () => timeline(resource, namespace, name, (_, drawn) => {
      waterfall = drawn;
      explain();
    }),
    map: () => owners(store, item),
    events: () => events(kind, namespace, name),
    logs: () => logs(namespace, name),
    verdicts: () => withTrace(),
  };

  /** Verdicts are in the timeline, which is asked first. */
  function withTrace() {
    const holder = html("div");
    let inner;
    const asked = timeline(resource, namespace, name, (trace) => {
      inner?.close();
      inner = verdicts(namespace, name, trace);
      show(holder, inner.element);
    });
    inner = verdicts(namespace, name, undefined);
    show(holder, inner.element);
    return { element: holder, changed: asked.changed, close: () => { asked.close(); inner.close(); } };
  }

  const explanation = new Explanation();
  const cause = new Cause(() => explain());

  /** Says why it is not well, if it is not, here and where its timeline says that it once was ready. */
  function explain() {
    const known = item();
    const isUnwell = Boolean(known && (cause.findings.length || problem(store, known)));
    const answer = isUnwell && explains() ? cause.answer ?? { pending: true } : undefined;
    explanation.show(known && `${known.kind.name} ${known.name}`, answer);
    waterfall?.setUnwell(isUnwell);
    cause.want(known);
  }

  const draw = () => {
    const known = item();
    const columns = store.columns.get(resource) ?? [];
    const cells = known ? columns.map((column, at) => [column, known.cells[at]]).filter(([column, value]) => (column.priority ?? 0) === 0 && column.name !== "Name" && value !== undefined && value !== "") : [];
    show(facts, cells.map(([column, value]) => html("div", {}, html("dt", {}, column.name), html("dd", {}, String(value)))),
      !known && html("div", {}, html("dd", { class: "quiet" }, "It is not there, or you may not see it.")));
    explain();
  };
  const view = views[chosen]();
  let version;
  const stop = store.subscribe(() => {
    draw();
    if (version === item()?.version) return;
    version = item()?.version;
    view.changed?.();
  });
  const following = kind ? [store.follow(kind), store.followOne(kind, namespace, name)] : [];
  draw();
  show(panel, view.element);
  const element = html("div", { class: "contents" }, html("h2", {}, `${kind?.name ?? resource} ${namespace ? `${namespace}/` : ""}${name}`), facts, explanation.element, strip, panel);
  return { element, title: name, close: () => { cause.close(); stop(); following.forEach((end) => end()); view.close(); } };
}
