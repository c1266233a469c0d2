// What is not well, the worst first, and why.

import { explains } from "./api.js";
import { html, say, show } from "./dom.js";
import { KINDS, address, kindOf } from "./kinds.js";
import { open, refusals } from "./lists.js";
import { List } from "./table.js";
import { Causes, Explanation, problem } from "./why.js";

/** How many objects the root causes are asked for of. */
const EXPLAINED = 20;
/** Keys that show or hide the root cause of a row. */
const EXPANDS = { ArrowRight: true, ArrowLeft: false };

export function unwell(store) {
  const kinds = ["nodes", "pods", "deployments.apps", "statefulsets.apps", "persistentvolumeclaims"].map(kindOf);
  const messages = html("div");
  const empty = html("p", { class: "good" });
  const hint = html("p", { class: "quiet" });
  const explanation = new Explanation();
  let rows = [];
  let expanded;
  const isExpanded = ({ item }) => item.uid === expanded;
  const causes = new Causes(() => {
    list.redraw();
    explain();
  });
  const list = new List({
    label: "What is not well",
    open: (row) => open(row.item),
    key: (row) => row.item.uid,
    level: () => 0,
    expanded: (row) => (explains() ? isExpanded(row) : undefined),
    onkey: (key, row) => key in EXPANDS && expand(row, EXPANDS[key]),
    columns: [
      { name: "Kind", value: (row) => row.item.kind.name },
      { name: "Namespace", value: (row) => row.item.namespace },
      { name: "Name", class: "wide", value: (row) => html("a", { href: address(row.item.kind.resource, row.item.namespace, row.item.name), tabindex: -1 }, row.item.name) },
      { name: "Problem", class: "wide", value: (row) => [toggle(row), sentence(row)] },
    ],
  });

  function sentence({ item, rank, text }) {
    const cause = causes.sentence(item);
    return html("span", { class: rank < 2 ? "bad" : "warn", title: cause && `${text}: ${cause}` }, cause ?? text);
  }

  function toggle(row) {
    if (!explains()) return undefined;
    const onclick = (event) => {
      event.stopPropagation();
      expand(row, !isExpanded(row));
    };
    return html("button", { type: "button", class: "fold", tabindex: -1, "aria-label": `Root cause of ${row.item.name}`, "aria-expanded": isExpanded(row), onclick }, isExpanded(row) ? "▾" : "▸");
  }

  /** Shows or hides the root cause of a row; true if there may be one. */
  function expand(row, wanted) {
    if (!row || !explains()) return false;
    if (wanted) expanded = row.item.uid;
    else if (isExpanded(row)) expanded = undefined;
    list.redraw();
    explain();
    return true;
  }

  function explain() {
    const chosen = rows.find(isExpanded)?.item;
    explanation.show(chosen, causes);
    const first = rows.slice(0, EXPLAINED).map(({ item }) => item);
    causes.want(chosen ? [chosen, ...first] : first);
  }

  const draw = () => {
    rows = [];
    for (const kind of kinds) {
      for (const item of store.of(kind).values()) {
        const found = problem(store, item);
        if (found) rows.push({ item, rank: found[0], text: found[1] });
      }
    }
    rows.sort((a, b) => a.rank - b.rank || a.item.name.localeCompare(b.item.name));
    list.update(rows);
    show(messages, refusals(store, kinds));
    const complete = kinds.every((kind) => store.complete.has(kind.resource));
    empty.textContent = rows.length || !complete ? "" : "Everything is well.";
    say(complete ? `${rows.length} problems` : "The cluster is being listed.");
    hint.textContent = rows.length && explains() ? "The right and left arrow keys show and hide the root cause of a row." : "";
    if (complete) explain();
  };
  const stop = store.subscribe(draw);
  const unfollow = [store.follow(KINDS[0]), store.follow(KINDS[1])];
  draw();
  const element = html("div", { class: "contents" }, html("h2", {}, "Unwell"), messages, empty, hint, list.element, explanation.element);
  return { element, title: "Unwell", list, close: () => { causes.close(); stop(); unfollow.forEach((end) => end()); list.close(); } };
}
