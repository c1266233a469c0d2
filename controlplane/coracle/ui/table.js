// A list of any length: only the rows that can be seen are in the page.

import { html, isTyping } from "./dom.js";

const HEIGHT = 26;
const MARGIN = 10;
/** Characters of a column that says nothing else. */
const MOST = 44;
/** Headings are bold and have capitals. */
const HEADING = 1.3;
let count = 0;

/**
 * A list with a heading. `columns` are {name, class, most, value(row)}, where a value is text or an element: a column is as wide as its
 * texts, at most `most` characters, and one of the class `grow` has the rest. `open(row)` is called by Enter and by a click; `key(row)`
 * keeps the selection on its row; `level(row)` and `expanded(row)` make it a tree; with `wraps`, cells of the class `text` have as many
 * lines as they need.
 */
export class List {
  constructor({ label, columns, open, key, level, expanded, onkey, wraps = false }) {
    Object.assign(this, { columns, open, key, level, expanded, onkey, wraps });
    this.id = `list-${(count += 1)}`;
    this.rows = [];
    this.selected = 0;
    this.shown = new Map();
    /** Characters per column, which only ever become more: columns must not jump while a list is scrolled. */
    this.widths = columns.map(() => 0);
    /** Where rows begin that wrap, and how high those are that were seen. */
    this.tops = [];
    this.heights = new Map();
    this.width = 0;
    this.head = html("div", { class: "head", role: "row" }, columns.map((column, at) => this.cell(column, at, "columnheader", html("b", {}, column.name))));
    this.space = html("div", { class: "space", role: "rowgroup" });
    this.element = html("div", {
      class: wraps ? "list wraps" : "list",
      role: level ? "treegrid" : "grid",
      tabindex: 0,
      "aria-label": label,
      "aria-colcount": columns.length,
      onscroll: () => this.draw(),
      onkeydown: (event) => this.keydown(event),
    }, html("div", { role: "rowgroup", class: "heading" }, this.head), this.space);
    this.fit();
    this.resized = new ResizeObserver(() => this.resize());
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
    this.place();
    this.redraw();
  }

  redraw() {
    for (const element of this.shown.values()) element.remove();
    this.shown.clear();
    this.draw();
  }

  resize() {
    if (this.wraps && this.width !== this.element.clientWidth) {
      this.width = this.element.clientWidth;
      this.heights.clear();
      this.place();
    }
    this.draw();
  }

  /** Adds rows that came into view and removes those that left it. */
  draw() {
    // Rows that wrap are measured when they are in the page, after which fewer or more of them may be in view.
    for (let tries = 0; tries < 4; tries += 1) {
      this.fill();
      if (this.fit() || this.wraps) this.position();
      if (!this.wraps || !this.measure()) break;
      this.place();
      this.position();
    }
    this.mark();
  }

  fill() {
    const top = this.element.scrollTop;
    const first = Math.max(0, this.rowAt(top) - MARGIN);
    const last = Math.min(this.rows.length, this.rowAt(top + this.element.clientHeight) + 1 + MARGIN);
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
  }

  /** Makes columns as wide as what is in them. */
  fit() {
    let changed = false;
    this.columns.forEach((column, at) => {
      const wanted = Math.max(this.widths[at], Math.ceil(column.name.length * HEADING));
      if (column.class?.includes("grow") || this.element.style.getPropertyValue(`--width-${at}`) === `${wanted}ch`) return;
      this.element.style.setProperty(`--width-${at}`, `${wanted}ch`);
      changed = true;
    });
    return changed;
  }

  /** Takes the heights of rows that wrap; whether one is another. */
  measure() {
    let changed = false;
    for (const [at, element] of this.shown) {
      const key = this.key?.(this.rows[at]) ?? at;
      const height = element.offsetHeight;
      // Nothing has a height where it is not shown.
      if (!height || (this.heights.get(key) ?? HEIGHT) === height) continue;
      this.heights.set(key, height);
      changed = true;
    }
    return changed;
  }

  /** Computes where rows begin. */
  place() {
    let top = this.rows.length * HEIGHT;
    if (this.wraps) {
      top = 0;
      this.tops = this.rows.map((row, at) => {
        const begin = top;
        top += this.heights.get(this.key?.(row) ?? at) ?? HEIGHT;
        return begin;
      });
    }
    this.space.style.height = `${top}px`;
  }

  position() {
    for (const [at, element] of this.shown) element.style.top = `${this.top(at)}px`;
  }

  top(at) {
    return this.wraps ? this.tops[at] ?? 0 : at * HEIGHT;
  }

  /** The row at a distance from the first. */
  rowAt(top) {
    if (!this.wraps) return Math.floor(top / HEIGHT);
    let [low, high] = [0, this.tops.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.tops[middle] <= top) low = middle;
      else high = middle;
    }
    return low;
  }

  cell(column, at, role, value) {
    const element = html("span", { class: `cell ${column.class ?? ""}`, role }, value);
    if (!column.class?.includes("grow")) {
      element.style.setProperty("--width", `var(--width-${at})`);
      this.widths[at] = Math.max(this.widths[at], Math.min(element.textContent.length, column.most ?? MOST));
    }
    return element;
  }

  row(at) {
    const row = this.rows[at];
    const cells = this.columns.map((column, index) => this.cell(column, index, "gridcell", column.value(row)));
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
    element.style.top = `${this.top(at)}px`;
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
    this.reveal();
    this.draw();
    // Rows that wrap have their heights only now.
    if (this.wraps) this.reveal();
  }

  /** Scrolls to the selected row. */
  reveal() {
    const top = this.top(this.selected);
    const height = (this.wraps && this.heights.get(this.key?.(this.rows[this.selected]) ?? this.selected)) || HEIGHT;
    const room = this.element.clientHeight - this.head.offsetHeight;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + height > this.element.scrollTop + room) this.element.scrollTop = top + height - room;
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
