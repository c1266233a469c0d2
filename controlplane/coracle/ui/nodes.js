// Nodes: state, usage, pods.

import { html, say, show } from "./dom.js";
import { address, kindOf } from "./kinds.js";
import { open, refusals } from "./lists.js";
import { bytes, cores } from "./quantity.js";
import { cell } from "./store.js";
import { List } from "./table.js";
import { age } from "./time.js";
import { poll } from "./usage.js";

export function nodes(store) {
  const [node, pod] = [kindOf("nodes"), kindOf("pods")];
  const abort = new AbortController();
  const usage = new Map();
  const messages = html("div");
  let counts = new Map();
  const list = new List({
    label: "Nodes",
    open,
    key: (item) => item.uid,
    columns: [
      { name: "Name", most: 60, value: (item) => html("a", { href: address("nodes", "", item.name), tabindex: -1 }, item.name) },
      { name: "Status", value: (item) => html("span", { class: String(cell(store, item, "Status")).startsWith("Ready") ? "good" : "bad" }, String(cell(store, item, "Status") ?? "")) },
      { name: "CPU", class: "number", value: (item) => cores(usage.get(item.name)?.cpu) },
      { name: "Memory", class: "number", value: (item) => bytes(usage.get(item.name)?.memory) },
      { name: "Pods", class: "number", value: (item) => String(counts.get(item.name) ?? 0) },
      { name: "Version", value: (item) => String(cell(store, item, "Version") ?? "") },
      { name: "Age", class: "number", value: (item) => age(item.created) },
    ],
  });
  const draw = () => {
    counts = new Map();
    for (const item of store.of(pod).values()) {
      const at = cell(store, item, "Node");
      if (at) counts.set(at, (counts.get(at) ?? 0) + 1);
    }
    const items = [...store.of(node).values()].sort((a, b) => a.name.localeCompare(b.name));
    list.update(items);
    show(messages, refusals(store, [node]));
    say(`${items.length} nodes`);
  };
  poll("nodes", (items) => {
    usage.clear();
    for (const item of items) usage.set(item.metadata.name, item.usage);
    list.redraw();
  }, abort.signal);
  const stop = store.subscribe(draw);
  const unfollow = store.follow(node);
  draw();
  const element = html("div", { class: "contents" }, html("h2", {}, "Nodes"), messages, list.element);
  return { element, title: "Nodes", list, close: () => { abort.abort(); stop(); unfollow(); list.close(); } };
}
