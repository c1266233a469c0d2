// Quantities of resources for people.

const SUFFIXES = {
  n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** The number of a quantity such as `200032n` or `751755Ki`; undefined for what is none. */
export function number(quantity) {
  const [, digits, suffix] = /^([+-]?[\d.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)$/.exec(quantity ?? "") ?? [];
  const found = Number(digits) * SUFFIXES[suffix];
  return Number.isFinite(found) ? found : undefined;
}

/** As in `2.0 cores`. */
export function cores(quantity) {
  const found = number(quantity);
  if (found === undefined) return quantity ?? "";
  return `${found.toFixed(found < 1 ? 2 : 1)} cores`;
}

/** As in `717 MiB`. */
export function bytes(quantity) {
  let found = number(quantity);
  if (found === undefined) return quantity ?? "";
  let unit = 0;
  // What would be 1024 when it is rounded is 1.0 of the next.
  while (Math.round(found) >= 1024 && unit < UNITS.length - 1) [found, unit] = [found / 1024, unit + 1];
  return `${found.toFixed(unit && found < 10 ? 1 : 0)} ${UNITS[unit]}`;
}
