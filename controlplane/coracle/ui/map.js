// What made what: owners of an object and what it owns, and all of the cluster as one tree.

import { html, say, show } from "./dom.js";
import { KINDS, address, kindNamed } from "./kinds.js";
import { open, refusals, state } from "./lists.js";
import { List } from "./table.js";
import { age } from "./time.js";

const DEEPEST = 6;
const MOST = 200;
/** Keys that show or hide what a row made. */
const EXPANDS = { ArrowRight: true, ArrowLeft: false };

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
    show(element, nested(above, html("ul", {}, html("li", { "aria-current": "true" }, html("strong", {}, `${item().kind.name} ${item().name}`), below(store.owned(), item().uid, 0)))));
  };
  const stop = store.subscribe(draw);
  draw();
  return { element, close: stop };
}

function below(all, uid, depth) {
  const owned = depth < DEEPEST ? all.get(uid) ?? [] : [];
  if (!owned.length) return undefined;
  const shown = owned.slice(0, MOST).map((one) => html("li", {}, link(one, one.namespace), below(all, one.uid, depth + 1)));
  if (owned.length > MOST) shown.push(html("li", { class: "quiet" }, `and ${owned.length - MOST} more`));
  return html("ul", {}, shown);
}

/** A link to an object that is known, or to a reference to one. */
function link(one, namespace, tabindex) {
  const kind = typeof one.kind === "string" ? kindNamed(one.kind) : one.kind;
  const text = `${kind?.name ?? one.kind} ${one.name}`;
  return kind ? html("a", { href: address(kind.resource, kind.namespaced ? namespace : "", one.name), tabindex }, text) : text;
}

/** A view of all objects below what made them. */
export function map(store) {
  const messages = html("div");
  const folded = new Set();
  const isOpen = (row) => !folded.has(row.item.uid);
  const list = new List({
    label: "Map of what made what. The right and left arrow keys show and hide what a row made.",
    key: (row) => row.item.uid,
    level: (row) => row.level,
    expanded: (row) => (row.made ? isOpen(row) : undefined),
    open: (row) => open(row.item),
    onkey: (key, row) => key in EXPANDS && fold(row, !EXPANDS[key]),
    columns: [
      { name: "Object", class: "grow tree", value: (row) => html("span", {}, toggle(row), link(row.item, row.item.namespace, -1), note(row)) },
      { name: "Namespace", value: (row) => row.item.namespace },
      { name: "State", value: (row) => state(store, row.item) },
      { name: "Age", class: "number", value: (row) => age(row.item.created) },
    ],
  });

  function toggle(row) {
    // As wide as a button, so that names of one level stand below each other.
    if (!row.made) return html("span", { class: "fold no-fold", "aria-hidden": true }, "▸");
    const onclick = (event) => {
      event.stopPropagation();
      fold(row, isOpen(row));
    };
    return html("button", { type: "button", class: "fold", tabindex: -1, "aria-label": `What ${row.item.name} made`, "aria-expanded": isOpen(row), onclick }, isOpen(row) ? "▾" : "▸");
  }

  /** Hides or shows what a row made; true if it made something. */
  function fold(row, wanted) {
    if (!row?.made) return false;
    if (wanted) folded.add(row.item.uid);
    else folded.delete(row.item.uid);
    draw();
    return true;
  }

  function draw() {
    const rows = tree(store, folded);
    list.update(rows);
    show(messages, refusals(store, KINDS));
    const complete = KINDS.every((kind) => store.complete.has(kind.resource));
    say(`${rows.length} rows of ${store.items.size} objects${complete ? "" : ", more are being listed"}`);
  }

  const stop = store.subscribe(draw);
  const unfollow = store.follow(KINDS[0]);
  draw();
  const element = html("div", { class: "contents" }, html("h2", {}, "Map"), messages, list.element);
  return { element, title: "Map", list, close: () => { stop(); unfollow(); list.close(); } };
}

/** What is hidden below a row, or who owns it where the page does not know the owner. */
function note({ item, level, made }) {
  const owner = level === 0 && (item.owners.find((reference) => reference.controller) ?? item.owners[0]);
  const texts = [made && `made ${made}`, owner && `made by ${owner.kind} ${owner.name}`].filter(Boolean);
  return texts.length ? html("span", { class: "quiet" }, ` ${texts.join(", ")}`) : undefined;
}

/** The uid of what made an object, or of its first owner that is known. */
function maker(store, item) {
  const known = item.owners.filter((owner) => store.items.has(owner.uid));
  return (known.find((owner) => owner.controller) ?? known[0])?.uid;
}

/** Rows of all objects: those without a known owner by namespace and name, each followed by what it made. */
function tree(store, folded) {
  const owned = store.owned();
  const all = [...store.items.values()].sort((a, b) => (a.place < b.place || (a.place === b.place && a.kind.name < b.kind.name) ? -1 : 1));
  const roots = all.filter((item) => maker(store, item) === undefined);
  const seen = new Set();
  const rows = [];
  // Objects that own each other have no root: the first of them is it.
  for (const root of [...roots, ...all]) {
    // No recursion: a chain of owners can be of any length.
    const waiting = [{ item: root, level: 0, hidden: false }];
    for (let next = waiting.pop(); next; next = waiting.pop()) {
      const { item, level, hidden } = next;
      if (seen.has(item.uid)) continue;
      seen.add(item.uid);
      const made = (owned.get(item.uid) ?? []).filter((one) => maker(store, one) === item.uid);
      if (!hidden) rows.push({ item, level, made: made.length });
      const hides = hidden || folded.has(item.uid);
      for (let at = made.length - 1; at >= 0; at -= 1) waiting.push({ item: made[at], level: level + 1, hidden: hides });
    }
  }
  return rows;
}
