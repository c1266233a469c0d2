// Views by the fragment of the address, keys, and the theme.

import { html, isTyping, show } from "./dom.js";
import { searchView, workloads } from "./lists.js";
import { map } from "./map.js";
import { nodes } from "./nodes.js";
import { objectView } from "./object.js";
import { Store } from "./store.js";
import { traces } from "./traces.js";
import { unwell } from "./unwell.js";

const THEMES = ["system", "light", "dark"];
const store = new Store();
const content = document.getElementById("content");
const search = document.getElementById("search");
let view;
let drawn;

function parts() {
  const decoded = (part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  };
  return location.hash.replace(/^#\/?/, "").split("/").map(decoded);
}

function make([name, ...rest]) {
  switch (name) {
    case "workloads":
      return workloads(store, rest[0]);
    case "nodes":
      return nodes(store);
    case "map":
      return map(store);
    case "traces":
      return traces();
    case "search":
      return searchView(store, rest.join("/"));
    case "object": {
      const [resource = "", namespace = "-", object = "", tab = "timeline"] = rest;
      return objectView(store, resource, namespace === "-" ? "" : namespace, object, tab);
    }
    default:
      return unwell(store);
  }
}

function route() {
  if (drawn === location.hash) return;
  drawn = location.hash;
  view?.close();
  const names = parts();
  try {
    view = make(names);
  } catch (error) {
    view = { element: html("p", { class: "bad" }, `This view failed: ${error.message}`), title: "Error", close: () => undefined };
    console.error(error);
  }
  show(content, view.element);
  document.title = `${view.title} – Coracle`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${names[0] || "unwell"}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (document.activeElement !== search) (content.querySelector("[role=grid], [role=treegrid]") ?? content).focus({ preventScroll: true });
}

function keydown(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (isTyping(event)) event.target.blur();
    else history.back();
    return;
  }
  if (isTyping(event)) {
    // From the field to its results.
    if (event.target === search && (event.key === "ArrowDown" || event.key === "Enter") && view.list) {
      event.preventDefault();
      view.list.element.focus();
    }
    return;
  }
  if (event.key === "/") {
    event.preventDefault();
    search.focus();
    search.select();
    return;
  }
  // Keys of the list also work where nothing has the focus.
  const list = content.querySelector("[role=grid], [role=treegrid]");
  if (list && document.activeElement !== list && !(document.activeElement instanceof HTMLButtonElement) && !(document.activeElement instanceof HTMLAnchorElement)) {
    list.focus();
    list.dispatchEvent(new KeyboardEvent("keydown", { key: event.key, bubbles: false }));
  }
}

function theme(next) {
  const button = document.getElementById("theme");
  button.textContent = `Theme: ${next}`;
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  button.onclick = () => {
    const chosen = THEMES[(THEMES.indexOf(next) + 1) % THEMES.length];
    try {
      localStorage.setItem("theme", chosen);
    } catch {
      // A browser that stores nothing forgets the choice.
    }
    theme(chosen);
  };
}

function storedTheme() {
  try {
    const stored = localStorage.getItem("theme");
    return THEMES.includes(stored) ? stored : "system";
  } catch {
    return "system";
  }
}

theme(storedTheme());
addEventListener("hashchange", route);
addEventListener("keydown", keydown);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  content.focus();
});
document.getElementById("search-form").addEventListener("submit", (event) => event.preventDefault());
search.addEventListener("input", () => {
  const hash = search.value.trim() ? `#/search/${encodeURIComponent(search.value.trim())}` : "#/unwell";
  // One entry of the history for all letters.
  if (parts()[0] === "search") history.replaceState(null, "", hash);
  else history.pushState(null, "", hash);
  route();
});
route();
store.start();
