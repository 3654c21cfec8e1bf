// All that the page knows of the daemon, kept up to date by its events.

/** Colours of jobs in the style sheet. */
export const COLOURS = 8;

/** What a job that is over counts, beside one that is not, when a new one gets its colour. */
const OVER = 1 / 1024;

/** Decisions that are kept. */
const DECISIONS = 50;

/** How long spans are kept after their end: as long as the widest chart. */
const SPANS_S = 3700;

/** States in the order in which they are shown. */
export const STATES = ["running", "starting", "stopping", "queued", "suspended", "finished", "failed", "cancelled"];

/** Whether a job in this state is over. */
export const hasEnded = (state) => state === "finished" || state === "failed" || state === "cancelled";

export class Store {
  cluster = null;
  /** By name: `{job, lower, colour, order}`. */
  jobs = new Map();
  /** By number. */
  decisions = new Map();
  /** By what they are, without their end. */
  spans = new Map();
  #colours = new Array(COLOURS).fill(0);

  /**
   * Takes an event. The first one of a connection says all: what is not over and not in it is not there any more.
   *
   * Returns the jobs whose state changed: `[name, state]`.
   */
  apply(event, first) {
    if (first && this.cluster && this.cluster.since_s !== event.cluster.since_s) this.#forget();
    this.cluster = event.cluster;
    const changes = [];
    if (first) {
      this.decisions.clear();
      this.spans.clear();
      const names = new Set(event.jobs.map((job) => job.name));
      for (const [name, { job }] of this.jobs) {
        if (!hasEnded(job.state) && !names.has(name)) this.#drop(name);
      }
    }
    for (const job of event.jobs) {
      const before = this.put(job);
      if (before !== job.state) changes.push([job.name, job.state]);
    }
    for (const decision of event.decisions) this.decisions.set(decision.number, decision);
    const numbers = [...this.decisions.keys()].sort((a, b) => b - a);
    for (const number of numbers.slice(DECISIONS)) this.decisions.delete(number);
    for (const span of event.spans) this.spans.set(`${span.node} ${span.slot} ${span.start_s}`, span);
    return changes;
  }

  /** Takes a job; returns its state before, `null` for a new one. */
  put(job) {
    const entry = this.jobs.get(job.name);
    if (!entry) {
      this.jobs.set(job.name, { job, lower: job.name.toLowerCase(), colour: this.#colour(job) });
      return null;
    }
    const before = entry.job.state;
    if (!hasEnded(before) && hasEnded(job.state)) this.#colours[entry.colour] -= 1 - OVER;
    entry.job = job;
    return before;
  }

  /** Forgets what is over for so long that nothing shows it. */
  prune(now) {
    for (const [key, span] of this.spans) {
      if (span.end_s != null && span.end_s < now - SPANS_S) this.spans.delete(key);
    }
  }

  /** Colour of a job; those that are not known have the first. */
  colour(name) {
    return this.jobs.get(name)?.colour ?? hash(name) % COLOURS;
  }

  /** The latest decisions, newest first. */
  latest() {
    return [...this.decisions.values()].sort((a, b) => b.number - a.number);
  }

  /** Share of the slots that was held in each of `bins` equal parts of the time from `start` to `end`. */
  shares(start, end, bins) {
    const width = (end - start) / bins;
    const held = new Array(bins).fill(0);
    for (const span of this.spans.values()) {
      const from = Math.max(span.start_s, start);
      const to = Math.min(span.end_s ?? end, end);
      for (let bin = Math.floor((from - start) / width); to > from && bin < bins; bin += 1) {
        const low = start + bin * width;
        const overlap = Math.min(to, low + width) - Math.max(from, low);
        if (overlap <= 0) break;
        held[bin] += overlap;
      }
    }
    const slots = Math.max(1, this.cluster?.slots ?? 1);
    return held.map((seconds) => Math.min(1, seconds / (width * slots)));
  }

  /** The colour that fewest jobs have, above all of those that are not over; of these the first from the one of its name. */
  #colour(job) {
    const first = hash(job.name) % COLOURS;
    let best = first;
    for (let step = 1; step < COLOURS; step += 1) {
      const colour = (first + step) % COLOURS;
      if (this.#colours[colour] < this.#colours[best]) best = colour;
    }
    this.#colours[best] += hasEnded(job.state) ? OVER : 1;
    return best;
  }

  #drop(name) {
    this.#colours[this.jobs.get(name).colour] -= 1;
    this.jobs.delete(name);
  }

  #forget() {
    this.jobs.clear();
    this.#colours.fill(0);
  }
}

function hash(text) {
  let value = 2166136261;
  for (let i = 0; i < text.length; i += 1) value = Math.imul(value ^ text.charCodeAt(i), 16777619) >>> 0;
  return value;
}
