// Numbers, durations and times in words. Times are seconds since the Unix epoch.

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const three = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3, useGrouping: true });
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const shortClock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });

/** What stands where nothing is known. */
export const NOTHING = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** A whole number. */
export const count = (value) => (known(value) ? whole.format(value) : NOTHING);

/** From here on a number is longer than its room. */
const HUGE = 1e9;

/** A measured number with three digits. */
export function measured(value) {
  if (!known(value)) return NOTHING;
  const size = Math.abs(value);
  if (size >= HUGE) return value.toExponential(1).replace("+", "");
  if (size >= 100) return whole.format(value);
  return size !== 0 && size < 0.001 ? value.toExponential(1) : three.format(value);
}

/** A loss with three digits; a power of ten where it is a long number, as of a job that diverges. */
export const loss = (value) => (known(value) && Math.abs(value) >= 1e5 ? value.toExponential(1) : measured(value));

/** A number beside an axis: short. */
export function tick(value) {
  const size = Math.abs(value);
  return size < 10_000 || size >= HUGE ? measured(value) : compact.format(value);
}

/** A text as a sentence: with a capital and a stop. */
export function sentence(text) {
  const trimmed = text.trim();
  if (trimmed === "") return "";
  return trimmed[0].toUpperCase() + trimmed.slice(1) + (/[.!?]$/.test(trimmed) ? "" : ".");
}

/** A share in percent; its sign stays on the same line. */
export const percent = (share) => (known(share) ? `${Math.round(100 * share)}\u00a0%` : NOTHING);

/** How far `predicted` is off from what was measured, with its sign; empty where one is not known. */
export function error(predicted, actual) {
  if (!known(predicted) || !known(actual) || actual <= 0) return "";
  const off = predicted / actual - 1;
  const sign = Math.round(100 * off) === 0 ? "±" : off > 0 ? "+" : "−";
  return sign + percent(Math.abs(off));
}

/** How far the prediction for a job is off; it speaks of the workers to come, so only a job that has these can tell. */
export function off(job) {
  return job.workers === job.target_workers ? error(job.predicted_examples_per_s, job.examples_per_s) : "";
}

/** A number with its unit, on one line. */
const unit = (number, name) => `${number}\u00a0${name}`;

/** A duration with its two largest units. */
export function duration(seconds) {
  if (!known(seconds)) return NOTHING;
  if (seconds < 0.0995) return unit(Number((1000 * Math.max(0, seconds)).toPrecision(2)), "ms");
  if (seconds < 9.95) return unit(seconds.toFixed(1), "s");
  const s = Math.round(seconds);
  if (s < 60) return unit(s, "s");
  if (s < 600) return both(s, 60, "min", "s");
  if (s < 3600) return unit(Math.floor(s / 60), "min");
  const minutes = Math.floor(s / 60);
  return minutes < 1440 ? both(minutes, 60, "h", "min") : both(Math.floor(minutes / 60), 24, "d", "h");
}

/** A number of small units as large ones and the rest. */
function both(number, size, large, small) {
  const rest = number % size;
  return unit(Math.floor(number / size), large) + (rest ? ` ${unit(rest, small)}` : "");
}

/** A duration in one unit, for narrow places. */
export function age(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return unit(s, "s");
  if (s < 3600) return unit(Math.floor(s / 60), "min");
  return s < 172_800 ? unit(Math.floor(s / 3600), "h") : unit(Math.floor(s / 86_400), "d");
}

/** Where a moment lies as seen from `now`. */
export const relative = (time, now) => (time >= now ? `in ${age(time - now)}` : `${age(now - time)} ago`);

/** The time of day, with the date if it is not near `now`. */
export function moment(time, now = Date.now() / 1000) {
  return Math.abs(time - now) < 43_200 ? clock.format(time * 1000) : day.format(time * 1000);
}

/** Hours and minutes. */
export const minute = (time) => shortClock.format(time * 1000);

/** The moment without doubt. */
export const iso = (time) => new Date(time * 1000).toISOString();

/** `one job`, `2 jobs`. */
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

/** How a job stands with its deadline: `{kind, text}`, or `null` without one. */
export function deadline(job, now) {
  if (job.deadline_s == null) return null;
  const due = `due ${relative(job.deadline_s, now)}`;
  if (job.state === "finished") {
    const late = job.ended_s - job.deadline_s;
    return late > 0 ? { kind: "missed", text: `${age(late)} late` } : { kind: "met", text: "on time" };
  }
  if (job.ended_s != null) return null;
  if (now > job.deadline_s) return { kind: "missed", text: "missed" };
  const late = job.expected_end_s - job.deadline_s;
  return job.expected_end_s != null && late > 0 ? { kind: "risk", text: "at risk" } : { kind: "open", text: due };
}

/** When something is expected, with the interval: `in 5 min (2–9 min)`. */
export function expected(times, now) {
  if (times == null) return null;
  const left = (time) => age(Math.max(0, time - now));
  if (times.middle_s == null) return `not before ${left(times.low_s)} from now`;
  const high = times.high_s == null ? "or much later" : `to ${left(times.high_s)}`;
  return `${relative(times.middle_s, now)} (90 %: ${left(times.low_s)} ${high})`;
}

/** Who starts before a job that waits. */
export function ahead({ ahead: number = 0, ahead_names: names = [] }) {
  if (number === 0) return "it is next";
  return `${plural(number, "job")}${names.length ? `: ${number > names.length ? "… " : ""}${names.join(", ")}` : ""}`;
}

/** Numbers of workers that a job may have. */
export const limits = (job) => (job.min_workers === job.max_workers ? count(job.max_workers) : `${count(job.min_workers)}–${count(job.max_workers)}`);

/** Workers now, and those to come when they differ. */
export const workers = (job) => (job.workers === job.target_workers ? count(job.workers) : `${count(job.workers)} → ${count(job.target_workers)}`);
