// The timeline of an object, which goes on while it is shown. One that has ended is asked for again when the object changes: it may
// have another by then.

import { Refusal, get, lines, pause } from "./api.js";
import { html, show } from "./dom.js";
import { Waterfall } from "./waterfall.js";

/** Changes of an object come in quick succession: one question is for all of them. */
const SETTLED = 500;

/** A view of the timeline, whose `changed` is for each change of the object; `onTrace` gets each answer and what draws it. */
export function timeline(resource, namespace, name, onTrace = () => undefined) {
  const abort = new AbortController();
  const { signal } = abort;
  const element = html("div", { class: "contents" }, html("p", { role: "status", class: "quiet" }, "Asking …"));
  let waterfall;
  let shown;
  let isChanged = false;
  let wake = () => undefined;
  const query = new URLSearchParams({ resource, namespace, name, compare: "true" });

  function begin(trace) {
    const before = waterfall;
    waterfall = new Waterfall(trace);
    shown = trace;
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

  /** Until the object has changed since the timeline was asked for. */
  function change() {
    return new Promise((resolve) => {
      if (isChanged || signal.aborted) return resolve();
      wake = resolve;
      signal.addEventListener("abort", resolve, { once: true });
    });
  }

  (async () => {
    while (!signal.aborted) {
      try {
        isChanged = false;
        const trace = await get(`coracle/v1/trace?${query}`, { signal });
        if (!shown || trace.trace !== shown.trace || trace.end !== shown.end) begin(trace);
        if (trace.end) {
          await change();
          await pause(SETTLED, signal);
          continue;
        }
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
  const changed = () => {
    isChanged = true;
    wake();
  };
  return { element, changed, close: () => { abort.abort(); waterfall?.close(); } };
}
