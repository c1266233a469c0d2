// Owners of an object and what it owns.

import { html, show } from "./dom.js";
import { address, kindNamed } from "./kinds.js";

const DEEPEST = 6;
const MOST = 200;

/** A view of owners, which are kept up to date until it is closed. */
export function owners(store, item) {
  const element = html("div", { class: "owners" });
  const draw = () => {
    let top = item();
    if (!top) return show(element, html("p", { class: "quiet" }, "It is not there."));
    const above = [];
    for (let depth = 0; depth < DEEPEST; depth += 1) {
      const owner = top.owners.find((reference) => reference.controller) ?? top.owners[0];
      if (!owner) break;
      const known = store.items.get(owner.uid);
      above.unshift(known ?? owner);
      if (!known) break;
      top = known;
    }
    const nested = (list, inner) => list.reduceRight((rest, one) => html("ul", {}, html("li", {}, link(one, item().namespace), rest)), inner);
    show(element, nested(above, html("ul", {}, html("li", { "aria-current": "true" }, html("strong", {}, `${item().kind.name} ${item().name}`), below(store, item().uid, 0)))));
  };
  const stop = store.subscribe(draw);
  draw();
  return { element, close: stop };
}

function below(store, uid, depth) {
  const owned = depth < DEEPEST ? store.owned(uid) : [];
  if (!owned.length) return undefined;
  owned.sort((a, b) => a.name.localeCompare(b.name));
  const shown = owned.slice(0, MOST).map((one) => html("li", {}, link(one, one.namespace), below(store, one.uid, depth + 1)));
  if (owned.length > MOST) shown.push(html("li", { class: "quiet" }, `and ${owned.length - MOST} more`));
  return html("ul", {}, shown);
}

/** An object that is known, or a reference to one. */
function link(one, namespace) {
  const kind = typeof one.kind === "string" ? kindNamed(one.kind) : one.kind;
  const text = `${kind?.name ?? one.kind} ${one.name}`;
  return kind ? html("a", { href: address(kind.resource, kind.namespaced ? namespace : "", one.name) }, text) : text;
}
