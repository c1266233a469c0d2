// Events of an object.

import { get } from "./api.js";
import { html, show } from "./dom.js";
import { List } from "./table.js";
import { age } from "./time.js";

const last = (event) => event.lastTimestamp ?? event.series?.lastObservedTime ?? event.eventTime ?? event.metadata.creationTimestamp;

/** A view of the events of an object by its name. */
export function events(kind, namespace, name) {
  const abort = new AbortController();
  const message = html("p", { role: "status" });
  const list = new List({
    label: `Events of ${name}`,
    wraps: true,
    columns: [
      { name: "Last seen", class: "number", value: (event) => age(last(event)) },
      { name: "Type", value: (event) => event.type },
      { name: "Reason", value: (event) => event.reason },
      { name: "Message", class: "grow text", value: (event) => event.message ?? "" },
    ],
  });
  const element = html("div", { class: "contents" }, message, list.element);
  const query = new URLSearchParams({ fieldSelector: `involvedObject.name=${name},involvedObject.kind=${kind.name}`, limit: 500 });
  const path = namespace ? `api/v1/namespaces/${encodeURIComponent(namespace)}/events` : "api/v1/events";
  get(`${path}?${query}`, { signal: abort.signal }).then(({ items }) => {
    items.sort((a, b) => Date.parse(last(b)) - Date.parse(last(a)));
    if (!items.length) message.textContent = "There are none.";
    list.update(items);
  }).catch((error) => abort.signal.aborted || show(message, error.message));
  return { element, close: () => { abort.abort(); list.close(); } };
}
