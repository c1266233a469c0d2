// Logs of a pod, as they come.

import { Refusal, get, stream } from "./api.js";
import { html, show } from "./dom.js";
import { pathOf } from "./kinds.js";

const MOST_LINES = 5000;

/** A view of the logs of a pod, which goes on until it is closed. */
export function logs(namespace, name) {
  const path = pathOf("pods", namespace, name);
  const output = html("pre", { class: "log", tabindex: 0, role: "log", "aria-label": `Log of ${name}`, "aria-live": "off" });
  const choice = html("select", { id: "container", onchange: () => run() });
  const message = html("p", { class: "quiet", role: "status" });
  const element = html("div", { class: "contents" }, html("p", {}, html("label", { for: "container" }, "Container "), choice), message, output);
  let abort = new AbortController();

  async function run() {
    abort.abort();
    abort = new AbortController();
    const { signal } = abort;
    output.replaceChildren();
    message.textContent = "";
    const query = new URLSearchParams({ follow: "true", tailLines: "500", container: choice.value });
    let pending = [];
    const flush = () => {
      if (!pending.length) return;
      const atEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 40;
      output.append(...pending.map((line) => document.createTextNode(`${line}\n`)));
      pending = [];
      while (output.childNodes.length > MOST_LINES) output.firstChild.remove();
      if (atEnd) output.scrollTop = output.scrollHeight;
    };
    const timer = setInterval(flush, 100);
    try {
      await stream(`${path}/log?${query}`, (line) => {
        pending.push(line);
        // Pages that are hidden are drawn rarely.
        if (pending.length > 2 * MOST_LINES) pending = pending.slice(-MOST_LINES);
      }, { accept: "*/*", signal });
      flush();
      message.textContent = "The log has ended.";
    } catch (error) {
      if (!signal.aborted) message.textContent = error instanceof Refusal ? error.message : "The connection was lost.";
    } finally {
      clearInterval(timer);
    }
  }

  (async () => {
    try {
      const { spec } = await get(path, { signal: abort.signal });
      const containers = [...(spec.containers ?? []), ...(spec.initContainers ?? []), ...(spec.ephemeralContainers ?? [])];
      show(choice, containers.map((container) => html("option", { value: container.name }, container.name)));
      await run();
    } catch (error) {
      if (!abort.signal.aborted) message.textContent = error.message;
    }
  })();
  return { element, close: () => abort.abort() };
}
