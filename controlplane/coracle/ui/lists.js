// Lists of objects: workloads, search results.

import { html, say, show } from "./dom.js";
import { KINDS, address, kindOf } from "./kinds.js";
import { bytes, cores } from "./quantity.js";
import { cell } from "./store.js";
import { List } from "./table.js";
import { age } from "./time.js";
import { PodUsage, poll } from "./usage.js";

export const open = (item) => { location.hash = address(item.kind.resource, item.namespace, item.name); };

/** What the server's table says about the state of an object. */
export function state(store, item) {
  if (item.deleting) return "Terminating";
  for (const name of ["Status", "Ready", "Completions", "Type"]) {
    const value = cell(store, item, name);
    if (value !== undefined) return name === "Status" ? String(value) : `${name.toLowerCase()} ${value}`;
  }
  return "";
}

function objectList(store, label, more = []) {
  return new List({
    label,
    open,
    wraps: true,
    key: (item) => item.uid,
    columns: [
      { name: "Kind", value: (item) => item.kind.name },
      { name: "Namespace", value: (item) => item.namespace },
      { name: "Name", most: 60, value: (item) => html("a", { href: address(item.kind.resource, item.namespace, item.name), tabindex: -1 }, item.name) },
      { name: "State", value: (item) => state(store, item) },
      ...more,
      { name: "Age", class: "number", value: (item) => age(item.created) },
    ],
  });
}

/** Kinds that were refused, in words. */
export function refusals(store, kinds) {
  return kinds.filter((kind) => store.refused.has(kind.resource))
    .map((kind) => html("p", { class: "warn" }, `${kind.name}: ${store.refused.get(kind.resource).message}`));
}

/** Objects of workloads, of one kind if one is named. */
export function workloads(store, resource) {
  const kinds = KINDS.filter((kind) => kind.workload);
  const chosen = kindOf(resource);
  const shown = chosen ? [chosen] : kinds;
  const usage = new PodUsage();
  const abort = new AbortController();
  const hasUsage = shown.some((kind) => kind.workload);
  const list = objectList(store, "Workloads", hasUsage ? [
    { name: "CPU", class: "number", value: (item) => cores(usage.of(item)?.cpu) },
    { name: "Memory", class: "number", value: (item) => bytes(usage.of(item)?.memory) },
  ] : []);
  const messages = html("div");
  const choice = html("select", { id: "kind", onchange: () => { location.hash = `#/workloads/${choice.value}`; } },
    html("option", { value: "" }, "all kinds"), KINDS.map((kind) => html("option", { value: kind.resource, selected: kind === chosen }, kind.name)));
  const draw = () => {
    const items = shown.flatMap((kind) => [...store.of(kind).values()]);
    items.sort((a, b) => (a.place < b.place ? -1 : 1));
    show(messages, refusals(store, shown));
    usage.add(store);
    list.update(items);
    const complete = shown.every((kind) => store.complete.has(kind.resource));
    say(`${items.length} objects${complete ? "" : ", more are being listed"}`);
  };
  const stop = store.subscribe(draw);
  const unfollow = store.follow(chosen ?? kinds[0]);
  if (hasUsage) {
    poll("pods", (items) => {
      usage.set(items);
      usage.add(store);
      list.redraw();
    }, abort.signal);
  }
  draw();
  const element = html("div", { class: "contents" }, html("h2", {}, "Workloads"), html("p", {}, html("label", { for: "kind" }, "Kind "), choice), messages, list.element);
  return { element, title: "Workloads", list, close: () => { abort.abort(); stop(); unfollow(); list.close(); } };
}

/** Objects that a query finds. */
export function searchView(store, query) {
  const list = objectList(store, "Results");
  const draw = () => {
    const items = store.search(query);
    list.update(items);
    say(`${items.length} results`);
  };
  const stop = store.subscribe(draw);
  draw();
  const element = html("div", { class: "contents" }, html("h2", {}, `Results for “${query}”`), list.element);
  return { element, title: "Search", list, close: () => { stop(); list.close(); } };
}
