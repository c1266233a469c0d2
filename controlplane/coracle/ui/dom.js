// Elements. Text is only ever set as text: nothing of the cluster is read as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null) continue;
    // States of aria have a false of their own.
    if (name.startsWith("aria-")) element.setAttribute(name, String(value));
    else if (value === false) continue;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === undefined || child === null || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child);
  }
}

/** An element with attributes, listeners (`onclick`) and children, which are elements or text. */
export function html(name, properties, ...children) {
  return fill(document.createElement(name), properties, children);
}

/** The same for SVG. */
export function svg(name, properties, ...children) {
  return fill(document.createElementNS(SVG, name), properties, children);
}

/** Replaces everything in an element. */
export function show(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** Tells people what happens, also those who do not see the page. */
export function say(text) {
  const status = document.getElementById("status");
  if (status.textContent !== text) status.textContent = text;
}

/** Whether keys are meant for a field. */
export function isTyping(event) {
  return event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement || event.target instanceof HTMLSelectElement;
}
