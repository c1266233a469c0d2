// A list of any length: only the rows that can be seen are in the page.

import { html, isTyping } from "./dom.js";

const HEIGHT = 26;
const MARGIN = 10;
let count = 0;

/**
 * A list with a heading. `columns` are {name, class, value(row)}, where a value is text or an element; `open(row)` is called by Enter
 * and by a click; `key(row)` keeps the selection on its row; `level(row)` and `expanded(row)` make it a tree.
 */
export class List {
  constructor({ label, columns, open, key, level, expanded, onkey }) {
    Object.assign(this, { columns, open, key, level, expanded, onkey });
    this.id = `list-${(count += 1)}`;
    this.rows = [];
    this.selected = 0;
    this.shown = new Map();
    this.head = html("div", { class: "head", role: "row" }, columns.map((column) => html("span", { class: `cell ${column.class ?? ""}`, role: "columnheader" }, column.name)));
    this.space = html("div", { class: "space", role: "rowgroup" });
    this.element = html("div", {
      class: "list",
      role: level ? "treegrid" : "grid",
      tabindex: 0,
      "aria-label": label,
      "aria-colcount": columns.length,
      onscroll: () => this.draw(),
      onkeydown: (event) => this.keydown(event),
    }, html("div", { role: "rowgroup" }, this.head), this.space);
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.element);
  }

  /** Replaces the rows; the selected one stays selected if it is still there. */
  update(rows) {
    const before = this.rows[this.selected];
    this.rows = rows;
    if (before && this.key) {
      const wanted = this.key(before);
      const same = rows[this.selected] && this.key(rows[this.selected]) === wanted;
      const at = same ? this.selected : rows.findIndex((row) => this.key(row) === wanted);
      if (at >= 0) this.selected = at;
    }
    this.selected = Math.max(0, Math.min(this.selected, rows.length - 1));
    this.element.setAttribute("aria-rowcount", rows.length + 1);
    this.space.style.height = `${rows.length * HEIGHT}px`;
    this.redraw();
  }

  redraw() {
    for (const element of this.shown.values()) element.remove();
    this.shown.clear();
    this.draw();
  }

  /** Adds rows that came into view and removes those that left it. */
  draw() {
    const top = this.element.scrollTop;
    const first = Math.max(0, Math.floor(top / HEIGHT) - MARGIN);
    const last = Math.min(this.rows.length, Math.ceil((top + this.element.clientHeight) / HEIGHT) + MARGIN);
    for (const [at, element] of this.shown) {
      if (at < first || at >= last) {
        element.remove();
        this.shown.delete(at);
      }
    }
    for (let at = first; at < last; at += 1) {
      if (this.shown.has(at)) continue;
      const element = this.row(at);
      this.shown.set(at, element);
      this.space.append(element);
    }
    this.mark();
  }

  row(at) {
    const row = this.rows[at];
    const cells = this.columns.map((column) => html("span", { class: `cell ${column.class ?? ""}`, role: "gridcell" }, column.value(row)));
    const element = html("div", {
      class: "row",
      role: "row",
      id: `${this.id}-${at}`,
      "aria-rowindex": at + 2,
      "aria-level": this.level ? this.level(row) + 1 : undefined,
      "aria-expanded": this.expanded?.(row),
      onclick: () => {
        this.select(at);
        this.open?.(row);
      },
    }, cells);
    element.style.top = `${at * HEIGHT}px`;
    if (this.level) cells[0].style.setProperty("--depth", Math.min(this.level(row), 20));
    return element;
  }

  mark() {
    for (const [at, element] of this.shown) element.setAttribute("aria-selected", at === this.selected);
    if (this.shown.has(this.selected)) this.element.setAttribute("aria-activedescendant", `${this.id}-${this.selected}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  select(at) {
    if (!this.rows.length) return;
    this.selected = Math.max(0, Math.min(at, this.rows.length - 1));
    const top = this.selected * HEIGHT;
    const room = this.element.clientHeight - HEIGHT;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + HEIGHT > this.element.scrollTop + room) this.element.scrollTop = top + HEIGHT - room;
    this.draw();
  }

  /** Does what a key means; true if it means something. */
  key_pressed(key) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / HEIGHT) - 2);
    const moves = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (key in moves) this.select(this.selected + moves[key]);
    else if (key === "Home") this.select(0);
    else if (key === "End") this.select(this.rows.length - 1);
    else if (key === "Enter" && this.rows[this.selected]) this.open?.(this.rows[this.selected]);
    else return Boolean(this.onkey?.(key, this.rows[this.selected]));
    return true;
  }

  keydown(event) {
    if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (this.key_pressed(event.key)) {
      event.preventDefault();
      event.stopPropagation();
    }
  }

  close() {
    this.resized.disconnect();
  }
}
