// A timeline as a waterfall, which is a tree of rows with times as text for those who do not see the bars.

import { html, say, show, svg } from "./dom.js";
import { Timeline, partOf, title } from "./spans.js";
import { List } from "./table.js";
import { duration } from "./time.js";

const WIDTH = 1000;
const BAR = 20;

export class Waterfall {
  constructor(trace) {
    this.timeline = new Timeline(trace);
    this.from = 0;
    this.to = this.timeline.end;
    this.summary = html("p", { class: "facts-line" });
    this.notes = html("div");
    this.details = html("p", { class: "quiet", "aria-live": "polite" });
    this.list = new List({
      label: "Timeline. Enter folds a row; plus, minus and 0 zoom; left and right move.",
      key: (node) => node.span.id,
      level: (node) => node.depth,
      expanded: (node) => (node.children.length ? !this.timeline.folded.has(node.span.id) : undefined),
      open: (node) => this.toggle(node),
      onkey: (key) => this.zoomed(key),
      columns: [
        { name: "Span", class: "wide tree", value: (node) => this.label(node) },
        { name: "Where", value: (node) => node.span.node || "server" },
        { name: "Start", class: "number", value: (node) => `+${duration(node.span.start)}` },
        { name: "Duration", class: "number", value: (node) => this.length(node.span) },
        { name: "Bar", class: "bar", value: (node) => this.bar(node) },
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

  update() {
    const { trace } = this.timeline;
    const covered = `${(trace.summary.covered * 100).toFixed(1)} % explained`;
    show(this.summary, html("strong", { class: { ready: "good", failed: "bad", stuck: "bad" }[trace.state] }, trace.state), ` after ${duration(trace.summary.total)}, ${covered}, ${trace.spans.length} spans. `, this.critical());
    show(this.notes, trace.notes.map((note) => html("p", { class: "warn" }, note)));
    this.draw();
  }

  /** The longest pieces of the critical path, in a sentence. */
  critical() {
    const sums = new Map();
    for (const piece of this.timeline.trace.critical) sums.set(piece.name, (sums.get(piece.name) ?? 0) + piece.end - piece.start);
    const longest = [...sums].sort((a, b) => b[1] - a[1]).slice(0, 4);
    return longest.length ? `Critical path: ${longest.map(([name, time]) => `${name} ${duration(time)}`).join(", ")}.` : "";
  }

  draw() {
    this.range.textContent = `${duration(Math.round(this.from))} to ${duration(Math.round(this.to))}`;
    this.list.update(this.timeline.rows());
  }

  label(node) {
    const { span } = node;
    const folded = node.children.length ? (this.timeline.folded.has(span.id) ? "▸ " : "▾ ") : "";
    const onPath = this.timeline.isOnPath(node);
    const flags = span.flags.filter((flag) => ["failed", "unfinished", "cancelled", "inferred"].includes(flag));
    return html("span", { class: onPath ? "on-path" : undefined, title: span.text || undefined }, folded, title(this.timeline.trace, span),
      onPath && html("span", { class: "quiet", title: "on the critical path" }, " *"),
      flags.length > 0 && html("span", { class: flags.includes("failed") ? "bad" : "warn" }, ` (${flags.join(", ")})`));
  }

  length(span) {
    if (span.end === null) return "goes on";
    const off = span.uncertainty > 0 ? ` ±${duration(span.uncertainty)}` : "";
    return duration(span.end - span.start) + off;
  }

  bar({ span }) {
    const scale = WIDTH / (this.to - this.from);
    const at = (time) => Math.max(-1, Math.min(WIDTH + 1, (time - this.from) * scale));
    const end = span.end ?? this.timeline.end;
    const x = at(span.start);
    const width = Math.max(1.5, at(end) - x);
    if (end < this.from || span.start > this.to) return svg("svg", { "aria-hidden": "true" });
    const classes = [`span-${partOf(span.stage)}`, span.end === null && "open", span.flags.includes("failed") && "failed", span.flags.includes("inferred") && "inferred"];
    const marked = this.timeline.critical.has(span.id) && svg("rect", { x, y: BAR - 4, width, height: 2, class: "critical-line" });
    return svg("svg", { viewBox: `0 0 ${WIDTH} ${BAR}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { x, y: 4, width, height: 11, class: classes.filter(Boolean).join(" ") }), marked);
  }

  toggle(node) {
    const { span } = node;
    if (node.children.length) this.timeline.toggle(span.id);
    const usual = span.usual ? `, usually ${duration(span.usual)}` : "";
    const lines = span.text ? ` — ${span.text.replaceAll("\n", ", ")}` : "";
    this.details.textContent = `${title(this.timeline.trace, span)}: ${this.length(span)}${usual}${lines}`;
    this.draw();
  }

  zoomed(key) {
    const middle = (this.from + this.to) / 2;
    const width = this.to - this.from;
    const end = this.timeline.end;
    const set = (from, to) => {
      this.from = Math.max(0, Math.min(from, end));
      this.to = Math.min(end, Math.max(to, this.from + Math.min(1000, end)));
    };
    if (key === "+" || key === "=") set(middle - width / 4, middle + width / 4);
    else if (key === "-") set(middle - width, middle + width);
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
