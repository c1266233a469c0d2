// A timeline as a waterfall, which is a tree of rows with times as text for those who do not see the bars.

import { html, say, show, svg } from "./dom.js";
import { Timeline, partOf, title } from "./spans.js";
import { author, criticalPath, outcome, podTimes, time, waiting } from "./summary.js";
import { List } from "./table.js";
import { duration } from "./time.js";

const WIDTH = 1000;
const BAR = 20;

export class Waterfall {
  constructor(trace) {
    this.timeline = new Timeline(trace);
    this.from = 0;
    this.to = this.timeline.end;
    this.unwell = false;
    this.summary = html("div", { class: "summary" });
    this.notes = html("div");
    this.details = html("p", { class: "quiet", "aria-live": "polite" });
    this.list = new List({
      label: "Timeline. Enter folds a row; plus zooms to the selected row, minus out of it, 0 shows all; left and right move.",
      key: (node) => node.span.id,
      level: (node) => node.depth,
      expanded: (node) => (node.children.length ? !this.timeline.folds(node) : undefined),
      open: (node) => this.toggle(node),
      onkey: (key) => this.zoomed(key),
      columns: [
        { name: "Span", class: "grow tree", value: (node) => this.label(node) },
        { name: "Where", class: "spare", value: (node) => node.span.node || "server" },
        { name: "Start", class: "number spare", value: (node) => `+${duration(node.span.start)}` },
        { name: "Duration", class: "number", value: (node) => this.length(node.span) },
        { name: "Bar", class: "grow bar", value: (node) => this.bar(node) },
      ],
    });
    const zoom = (key, text, label) => html("button", { type: "button", "aria-label": label, onclick: () => this.zoomed(key) }, text);
    this.element = html("section", { class: "stack", "aria-label": "Timeline" }, this.summary, this.notes,
      html("p", {}, zoom("+", "+", "Zoom in"), " ", zoom("-", "−", "Zoom out"), " ", zoom("0", "all", "Show everything"), " ", this.range = html("span", { class: "quiet", id: "range" })),
      this.list.element, this.details);
    this.update();
  }

  /** Takes more of a timeline that goes on. */
  merge(more) {
    const showsAll = this.from === 0 && this.to === this.timeline.end;
    this.timeline.merge(more);
    if (showsAll) this.to = this.timeline.end;
    this.update();
  }

  /** Says whether the object is not well now, whatever it was when its change had its effect. */
  setUnwell(unwell) {
    if (unwell === this.unwell) return;
    this.unwell = unwell;
    this.summarize();
  }

  update() {
    this.summarize();
    this.draw();
  }

  summarize() {
    const { trace } = this.timeline;
    const isOver = this.unwell && trace.state === "ready";
    const state = isOver ? "warn" : { ready: "good", complete: "good", failed: "bad", stuck: "bad" }[trace.state];
    const facts = [author(trace), html("strong", { class: state }, outcome(trace), isOver && ", not well now"), `${(trace.summary.covered * 100).toFixed(1)} % explained`, `${trace.spans.length} spans`];
    show(this.summary, html("p", { class: "facts" }, facts.filter(Boolean).map((fact) => html("span", {}, fact))),
      waiting(trace).map((line) => html("p", { class: "warn waits" }, line)),
      [criticalPath(trace), podTimes(trace)].map((line) => html("p", {}, line)));
    const lost = trace.kept?.lost > 0 ? [`${trace.kept.lost} spans were lost`] : [];
    show(this.notes, [...trace.notes, ...lost].map((note) => html("p", { class: "warn" }, note)));
  }

  draw() {
    this.range.textContent = `${duration(Math.round(this.from))} to ${duration(Math.round(this.to))}`;
    this.list.update(this.timeline.rows());
  }

  label(node) {
    const { span } = node;
    const folded = node.children.length ? (this.timeline.folds(node) ? "▸ " : "▾ ") : "";
    const onPath = this.timeline.isOnPath(node);
    const flags = span.flags.filter((flag) => ["failed", "unfinished", "cancelled", "inferred"].includes(flag));
    return html("span", { class: onPath ? "on-path" : undefined, title: span.text || undefined }, folded, title(this.timeline.trace, span),
      node.pod?.ready !== undefined && html("span", { class: "quiet" }, ` ready after ${time(node.pod.ready)}`),
      this.waits(span) && html("span", { class: "warn" }, ` ${this.waits(span)}`),
      onPath && html("span", { class: "quiet", title: "on the critical path" }, " *"),
      flags.length > 0 && html("span", { class: flags.includes("failed") ? "bad" : "warn" }, ` (${flags.join(", ")})`));
  }

  /** What the object that a row creates or deletes waits for now. */
  waits(span) {
    const object = this.timeline.trace.objects[span.object ?? -1];
    return span.stage === "write" && ["create", "delete"].includes(span.name) && object && !object.hidden ? object.waits : undefined;
  }

  length(span) {
    if (span.end === null) return "goes on";
    if (span.taken !== undefined) return duration(span.taken);
    const off = span.uncertainty > 0 ? ` ±${duration(span.uncertainty)}` : "";
    return duration(span.end - span.start) + off;
  }

  bar(node) {
    const { span } = node;
    const scale = WIDTH / (this.to - this.from);
    const at = (nanos) => Math.max(-1, Math.min(WIDTH + 1, (nanos - this.from) * scale));
    const box = (start, end, y, height, ...classes) => {
      if (end < this.from || start > this.to) return undefined;
      return svg("rect", { x: at(start), y, width: Math.max(1.5, at(end) - at(start)), height, class: classes.filter(Boolean).join(" ") });
    };
    const draw = (one) => {
      const end = one.end ?? this.timeline.end;
      return [box(one.start, end, 4, 11, `span-${partOf(one.stage)}`, one.end === null && "open", one.flags.includes("failed") && "failed", one.flags.includes("inferred") && "inferred"),
        this.timeline.critical.has(one.id) && box(one.start, end, BAR - 4, 2, "critical-line")];
    };
    // What is folded away is there all the same.
    const followed = this.timeline.folds(node) && !node.stages && box(span.start, node.until, 7, 5, `span-${partOf(span.stage)}`, "followed");
    return svg("svg", { viewBox: `0 0 ${WIDTH} ${BAR}`, preserveAspectRatio: "none", "aria-hidden": "true" }, followed, (node.stages ?? [span]).map(draw));
  }

  toggle(node) {
    const { span } = node;
    if (node.children.length) this.timeline.toggle(node);
    const usual = span.usual ? `, usually ${duration(span.usual)}` : "";
    const lines = span.text ? ` — ${span.text.replaceAll("\n", ", ")}` : "";
    this.details.textContent = `${title(this.timeline.trace, span)}: ${this.length(span)}${usual}${lines}`;
    this.draw();
  }

  /** The time to zoom to: the middle of what can be seen of the selected row, or of all of it if nothing can. */
  middle() {
    const node = this.list.rows[this.list.selected];
    if (!node) return (this.from + this.to) / 2;
    const [start, end] = [node.span.start, this.timeline.folds(node) ? node.until : node.span.end ?? this.timeline.end];
    const [from, to] = [Math.max(start, this.from), Math.min(end, this.to)];
    return from <= to ? (from + to) / 2 : (start + end) / 2;
  }

  zoomed(key) {
    const width = this.to - this.from;
    const end = this.timeline.end;
    const set = (from, to) => {
      this.from = Math.max(0, Math.min(from, end));
      this.to = Math.min(end, Math.max(to, this.from + Math.min(1000, end)));
    };
    /** As wide as wanted also at the edges. */
    const around = (middle, wanted) => {
      const wide = Math.min(end, wanted);
      const from = Math.max(0, Math.min(middle - wide / 2, end - wide));
      set(from, from + wide);
    };
    if (key === "+" || key === "=") around(this.middle(), width / 2);
    else if (key === "-") around((this.from + this.to) / 2, width * 2);
    else if (key === "0") set(0, end);
    else if (key === "ArrowLeft") set(Math.max(0, this.from - width / 4), Math.max(width, this.to - width / 4));
    else if (key === "ArrowRight") set(Math.min(end - width, this.from + width / 4), Math.min(end, this.to + width / 4));
    else return false;
    say(`${duration(Math.round(this.from))} to ${duration(Math.round(this.to))}`);
    this.draw();
    return true;
  }

  close() {
    this.list.close();
  }
}
