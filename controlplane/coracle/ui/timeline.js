// The timeline of an object, which goes on while it is shown.

import { Refusal, get, lines, pause } from "./api.js";
import { html, show } from "./dom.js";
import { Waterfall } from "./waterfall.js";

/** A view of the timeline; `onTrace` gets each answer and what draws it. */
export function timeline(resource, namespace, name, onTrace = () => undefined) {
  const abort = new AbortController();
  const { signal } = abort;
  const element = html("div", { class: "contents" }, html("p", { role: "status", class: "quiet" }, "Asking …"));
  let waterfall;
  const query = new URLSearchParams({ resource, namespace, name, compare: "true" });

  function begin(trace) {
    const before = waterfall;
    waterfall = new Waterfall(trace);
    show(element, waterfall.element);
    before?.close();
    if (document.activeElement === document.getElementById("content")) waterfall.list.element.focus();
    onTrace(trace, waterfall);
  }

  function message(error) {
    const code = error instanceof Refusal ? error.code : 0;
    const why = code === 404 ? error.message : code === 403 ? "You may not read timelines." : `No answer: ${error.message}`;
    show(element, html("p", { role: "status" }, why));
  }

  (async () => {
    while (!signal.aborted) {
      try {
        const trace = await get(`coracle/v1/trace?${query}`, { signal });
        begin(trace);
        if (trace.end) return;
        query.set("follow", "true");
        await lines(`coracle/v1/trace?${query}`, (update) => {
          if (update.type === "trace") begin(update.trace);
          else if (update.type === "spans") waterfall.merge(update);
        }, { signal });
        query.delete("follow");
      } catch (error) {
        if (signal.aborted) return;
        if (!waterfall) return message(error);
        query.delete("follow");
      }
      await pause(2000, signal);
    }
  })();
  return { element, close: () => { abort.abort(); waterfall?.close(); } };
}
