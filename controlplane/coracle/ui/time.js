// Times and durations for people.

/** Nanoseconds as in `4.1 ms`. */
export function duration(nanos) {
  if (nanos === null || nanos === undefined) return "";
  if (nanos < 1e3) return `${nanos} ns`;
  if (nanos < 1e6) return `${(nanos / 1e3).toFixed(0)} µs`;
  if (nanos < 1e9) return `${(nanos / 1e6).toFixed(1)} ms`;
  if (nanos < 60e9) return `${(nanos / 1e9).toFixed(2)} s`;
  return `${Math.floor(nanos / 60e9)} min ${Math.floor((nanos / 1e9) % 60)} s`;
}

/** How long ago, as kubectl writes it. */
export function age(timestamp, now = Date.now()) {
  const seconds = Math.max(0, Math.floor((now - Date.parse(timestamp)) / 1000));
  if (Number.isNaN(seconds)) return "";
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}
