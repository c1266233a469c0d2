// What is not well, the worst first, and why: the list of `coracle why -A` where the proxy of `coracle ui` has it, otherwise what the
// server's tables say.

import { explains } from "./api.js";
import { html, say, show } from "./dom.js";
import { KINDS, address, kindNamed, kindOf, link } from "./kinds.js";
import { refusals } from "./lists.js";
import { List } from "./table.js";
import { age } from "./time.js";
import { Explanation, Survey, notLookedAt, problem } from "./why.js";

/** Keys that show or hide the root cause of a row. */
const EXPANDS = { ArrowRight: true, ArrowLeft: false };

export function unwell(store) {
  const kinds = ["nodes", "pods", "deployments.apps", "statefulsets.apps", "persistentvolumeclaims"].map(kindOf);
  const messages = html("div");
  const empty = html("p", { class: "good" });
  const hint = html("p", { class: "quiet" });
  const explanation = new Explanation();
  const survey = new Survey(() => draw());
  let rows = [];
  let expanded;
  let list;
  const isExpanded = (row) => row.key === expanded;
  const object = [
    { name: "Kind", value: (row) => row.kind },
    { name: "Namespace", value: (row) => row.namespace },
    { name: "Name", value: (row) => link(row.kind, row.namespace, row.name) },
  ];
  const options = {
    label: "What is not well",
    wraps: true,
    key: (row) => row.key,
    open: ({ kind, namespace, name }) => {
      const known = kindNamed(kind);
      if (known) location.hash = address(known.resource, namespace, name);
    },
  };
  const sentence = (row) => html("span", { class: row.severity }, row.text);

  /** Causes as the proxy found them. */
  const causes = () => new List({
    ...options,
    level: () => 0,
    expanded: isExpanded,
    onkey: (key, row) => key in EXPANDS && expand(row, EXPANDS[key]),
    columns: [
      { name: "Severity", value: (row) => html("span", { class: row.severity }, row.severity) },
      { name: "Since", class: "number", value: (row) => age(row.finding.since) },
      ...object,
      { name: "Problem", class: "grow text", value: (row) => [toggle(row), sentence(row)] },
    ],
  });

  /** Objects that are not well by the tables, which do not say since when. */
  const objects = () => new List({ ...options, columns: [...object, { name: "Problem", class: "grow text", value: sentence }] });

  function toggle(row) {
    const onclick = (event) => {
      event.stopPropagation();
      expand(row, !isExpanded(row));
    };
    return html("button", { type: "button", class: "fold", tabindex: -1, "aria-label": `Root cause of ${row.name}`, "aria-expanded": isExpanded(row), onclick }, isExpanded(row) ? "▾" : "▸");
  }

  /** Shows or hides the root cause of a row; true if there is one. */
  function expand(row, wanted) {
    if (!row) return false;
    if (wanted) expanded = row.key;
    else if (isExpanded(row)) expanded = undefined;
    list.redraw();
    explain();
    return true;
  }

  function explain() {
    const row = rows.find(isExpanded);
    explanation.show(row && `${row.kind} ${row.name}`, row?.finding && { report: { findings: [row.finding], notLookedAt: [] } });
  }

  const holder = html("div", { class: "contents" });
  let isSurvey;

  /** The list for one of both, with the focus of the other. */
  function use(wanted) {
    if (isSurvey === wanted) return;
    isSurvey = wanted;
    const before = list;
    const focused = before && document.activeElement === before.element;
    list = view.list = wanted ? causes() : objects();
    show(holder, list.element);
    if (focused) list.element.focus({ preventScroll: true });
    before?.close();
  }

  function draw() {
    survey.start();
    // Both at once would be one list that changes under the hands of people.
    const waits = explains() && !survey.report && !survey.error;
    use(explains() && !(survey.error && !survey.report));
    rows = waits ? [] : isSurvey ? found(survey.report) : listed(store, kinds);
    list.update(rows);
    const complete = !waits && (isSurvey || kinds.every((kind) => store.complete.has(kind.resource)));
    show(messages, survey.error && html("p", { class: "warn" }, `Root causes could not be looked for: ${survey.error}`),
      isSurvey ? survey.report && notLookedAt(survey.report) : refusals(store, kinds));
    empty.textContent = rows.length || !complete ? "" : isSurvey ? "Nothing is wrong as far as was looked." : "Everything is well.";
    hint.textContent = rows.length && isSurvey ? "The right and left arrow keys show and hide the root cause of a row." : "";
    say(complete ? `${rows.length} problems` : waits ? "Root causes are being looked for." : "The cluster is being listed.");
    explain();
  }

  const element = html("div", { class: "contents" }, html("h2", {}, "Unwell"), messages, empty, hint, holder, explanation.element);
  const stop = store.subscribe(() => { if (!isSurvey || !survey.begun) draw(); });
  const unfollow = [store.follow(KINDS[0]), store.follow(KINDS[1])];
  const view = { element, title: "Unwell", list: undefined, close: () => { survey.close(); stop(); unfollow.forEach((end) => end()); list.close(); } };
  draw();
  return view;
}

/** Rows of causes, in their order. */
function found({ findings }) {
  const times = new Map();
  return findings.map((finding) => {
    const { kind, namespace = "", name } = finding.object;
    const base = `${finding.trouble} ${kind} ${namespace}/${name}`;
    times.set(base, (times.get(base) ?? 0) + 1);
    const more = finding.others?.length ? ` (and ${finding.others.length} more)` : "";
    return { key: `${base} ${times.get(base)}`, kind, namespace, name, severity: finding.severity, text: finding.cause.split("\n", 1)[0] + more, finding };
  });
}

/** Rows of objects that the tables tell to be unwell. */
function listed(store, kinds) {
  const rows = [];
  for (const kind of kinds) {
    for (const item of store.of(kind).values()) {
      const [rank, text] = problem(store, item) ?? [];
      if (text) rows.push({ key: item.uid, kind: kind.name, namespace: item.namespace, name: item.name, rank, severity: rank < 2 ? "error" : "warning", text });
    }
  }
  return rows.sort((a, b) => a.rank - b.rank || a.name.localeCompare(b.name));
}
