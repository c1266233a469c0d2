// The newest changes of the cluster and what became of them.

import { get, pause } from "./api.js";
import { html, say, show } from "./dom.js";
import { address } from "./kinds.js";
import { List } from "./table.js";
import { age, duration } from "./time.js";

/** Who changed something, as far as it may be seen: a program, its user, or both. */
function author(program, user) {
  return program && user ? `${program} (${user})` : program || user || "";
}

const PAUSE = 5000;

export function traces() {
  const abort = new AbortController();
  const message = html("p", { role: "status" });
  const took = (item) => (item.end ? (Date.parse(item.end) - Date.parse(item.begin)) * 1e6 : undefined);
  const list = new List({
    label: "Changes",
    wraps: true,
    open: (item) => { location.hash = address(item.resource, item.namespace, item.name); },
    key: (item) => item.trace + item.begin,
    columns: [
      { name: "When", class: "number", value: (item) => age(item.begin) },
      { name: "What", value: (item) => (item.state === "failed" ? html("span", { class: "bad" }, `${item.verb} failed`) : item.verb) },
      { name: "Resource", value: (item) => item.resource },
      { name: "Namespace", value: (item) => item.namespace },
      { name: "Name", most: 60, value: (item) => html("a", { href: address(item.resource, item.namespace, item.name), tabindex: -1 }, item.name) },
      { name: "By", most: 50, value: (item) => author(item.program, item.user) },
      { name: "Request", class: "number", value: (item) => duration(took(item)) },
    ],
  });
  (async () => {
    while (!abort.signal.aborted) {
      try {
        const { items } = await get("coracle/v1/traces?limit=500", { signal: abort.signal });
        list.update(items);
        message.textContent = "";
        say(`${items.length} changes`);
      } catch (error) {
        if (!abort.signal.aborted) show(message, error.code === 404 ? "This server records no timelines." : error.message);
        if (error.code === 404) return;
      }
      await pause(PAUSE, abort.signal);
    }
  })();
  const element = html("div", { class: "contents" }, html("h2", {}, "Changes"), message, list.element);
  return { element, title: "Changes", list, close: () => { abort.abort(); list.close(); } };
}
