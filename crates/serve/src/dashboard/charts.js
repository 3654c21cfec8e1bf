// The curves of one job: loss, throughput beside its prediction, and workers, above each other on one time axis.

import { draw, make, set, setText } from "./page.js";
import { count, duration, loss, measured, moment, percent, tick } from "./words.js";

/** Where readers chose it, the loss has a logarithmic axis from then on, of every job. */
const LOGARITHMIC = "bellwether-logarithmic-loss";

const LEFT = 48;
const RIGHT = 8;
const TOP = 6;
const HEIGHT = 96;
const AXIS = 18;

/** A break in training at least this long, and so many times longer than between other points, is left open. */
const BREAK_S = 5;
const BREAK_TIMES = 8;

const PLOTS = [
  { key: "loss", title: "Loss", value: (point) => point.loss, zero: false, text: loss },
  { key: "rate", title: "Samples per second", value: (point) => point.examples_per_s, zero: true, text: measured },
  { key: "workers", title: "Workers", value: (point) => point.workers, zero: true, text: count, steps: true, height: 56 },
];

export class Curves {
  constructor(box) {
    this.box = box;
    this.points = [];
    this.evaluations = [];
    this.at = null;
    this.other = null;
    this.logarithmic = localStorage.getItem(LOGARITHMIC) === "yes";
    set(box, { tabindex: 0, role: "group", "aria-label": "Curves of the job. Left and right arrow walk along them." });
    this.plots = PLOTS.map((plot) => this.#plot(plot));
    this.note = make("p", { class: "empty" }, "No steps yet: the curves begin with the first one.");
    box.append(this.note);
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("pointermove", (event) => this.#point(event));
    box.addEventListener("pointerleave", () => this.#mark(null));
    box.addEventListener("blur", () => this.#mark(null));
    this.observer = new ResizeObserver(() => this.draw(this.points, this.evaluations, this.job));
    this.observer.observe(box);
  }

  /** Ends it. */
  close() {
    this.observer.disconnect();
  }

  #plot(plot) {
    const value = make("span", { class: "value" });
    const svg = draw("svg", { class: "plot", "aria-hidden": "true" });
    const head = make("h4", {}, ...(plot.key === "loss" ? [this.#toggle()] : []), plot.title, " ", value);
    const figure = make("div", { class: "chart" }, head, svg);
    this.box.append(figure);
    return { ...plot, height: plot.height ?? HEIGHT, value_of: plot.value, label: value, svg, figure };
  }

  #toggle() {
    const button = make("button", { type: "button", class: "quiet axis", "aria-pressed": this.logarithmic, title: "A logarithmic axis" }, "log");
    button.addEventListener("click", () => {
      this.logarithmic = !this.logarithmic;
      localStorage.setItem(LOGARITHMIC, this.logarithmic ? "yes" : "no");
      set(button, { "aria-pressed": String(this.logarithmic) });
      this.draw(this.points, this.evaluations, this.job);
    });
    return button;
  }

  /** Draws the loss of another job, too, as far into its training: `{name, points}`, or `null`. */
  compare(other) {
    this.other = other?.points.length ? other : null;
    this.draw(this.points, this.evaluations, this.job);
  }

  /** The other job's loss at each point here that has done as many steps or more. */
  #others() {
    if (!this.other) return [];
    const steps = this.points.map(({ step }) => step);
    const where = (step) => {
      const next = steps.findIndex((own) => own >= step);
      if (next <= 0) return next < 0 ? null : this.xs[0];
      const part = (step - steps[next - 1]) / (steps[next] - steps[next - 1] || 1);
      return this.xs[next - 1] + part * (this.xs[next] - this.xs[next - 1]);
    };
    const points = this.other.points.map(({ step, loss }) => ({ x: where(step), loss }));
    return points.filter(({ x, loss }) => x !== null && loss != null && Number.isFinite(loss));
  }

  /** Draws the points of `job` and its evaluations on held-out samples. */
  draw(points, evaluations, job) {
    Object.assign(this, { points, evaluations, job });
    const width = this.box.clientWidth;
    const drawable = points.length > 0 && width > 120;
    this.note.hidden = points.length > 0;
    for (const plot of this.plots) plot.figure.hidden = !drawable;
    if (!drawable) return;
    // Without times, as of steps that were only counted, the steps are the axis.
    this.timed = points.every((point) => point.time_s != null);
    this.xs = points.map((point) => (this.timed ? point.time_s : point.step));
    this.held = evaluations.filter(({ loss }) => loss != null).map((point) => ({ ...point, x: this.timed ? point.time_s : point.step }));
    const [low, high] = [Math.min(this.xs[0], ...this.held.map(({ x }) => x)), Math.max(this.xs.at(-1), ...this.held.map(({ x }) => x))];
    const span = high - low || 1;
    this.x = (value) => LEFT + ((value - low) / span) * (width - LEFT - RIGHT);
    this.breaks = this.#breaks();
    this.plots.forEach((plot, index) => this.#draw(plot, width, index === this.plots.length - 1, [low, high]));
    this.#label();
  }

  /** Indices of points before which training stood still. */
  #breaks() {
    if (!this.timed) return new Set();
    const gaps = this.xs.slice(1).map((x, index) => x - this.xs[index]);
    const usual = [...gaps].sort((a, b) => a - b)[Math.floor(gaps.length / 2)] ?? 0;
    return new Set(gaps.flatMap((gap, index) => (gap > Math.max(BREAK_S, BREAK_TIMES * usual) ? [index + 1] : [])));
  }

  #draw(plot, width, last, ends) {
    const values = this.points.map(plot.value_of);
    const band = plot.key === "rate" ? this.#prediction() : null;
    const held = plot.key === "loss" ? this.held : [];
    const others = plot.key === "loss" ? this.#others() : [];
    const all = [...values, ...[...held, ...others].map((point) => point.loss), band?.value, band?.low, band?.high].filter((value) => value != null && Number.isFinite(value));
    // A loss that is not positive has no logarithm.
    const logarithmic = plot.key === "loss" && this.logarithmic && all.length > 0 && Math.min(...all) > 0;
    const ticks = logarithmic ? powers(Math.min(...all), Math.max(...all)) : scale(plot.zero ? 0 : Math.min(...all), Math.max(...all), plot.steps);
    const at = logarithmic ? Math.log : (value) => value;
    const [low, high] = [at(ticks[0]), at(ticks.at(-1))];
    const y = (value) => TOP + (1 - (at(value) - low) / (high - low || 1)) * (plot.height - TOP - 4);
    plot.y = y;
    const lines = ticks.flatMap((value) => [
      draw("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      draw("text", { x: LEFT - 6, y: y(value), "text-anchor": "end", "dominant-baseline": "central" }, tick(value)),
    ]);
    const shapes = [];
    if (band) shapes.push(...this.#band(band, y, width));
    shapes.push(draw("path", { class: `line line-${plot.key}`, d: this.#path(values, y, plot.steps) }));
    if (held.length) shapes.push(...this.#held(held, y));
    if (others.length) {
      const path = others.map(({ x, loss: value }, index) => `${index ? "L" : "M"}${this.x(x).toFixed(1)} ${y(value).toFixed(1)}`).join("");
      shapes.push(draw("path", { class: "line line-other", d: path }, draw("title", {}, `loss of ${this.other.name}`)));
    }
    plot.dot = draw("circle", { class: "dot", r: 3, visibility: "hidden" });
    plot.rule = draw("line", { class: "rule", y1: TOP, y2: plot.height - 4, visibility: "hidden" });
    set(plot.svg, { width, height: plot.height + (last ? AXIS : 0) });
    plot.svg.replaceChildren(...lines, ...shapes, plot.rule, plot.dot, ...(last ? this.#axis(plot.height, width, ends) : []));
  }

  /** What is predicted for the workers that the job has, from where it has them. */
  #prediction() {
    const { predicted_examples_per_s: value, predicted_low: low, predicted_high: high, target_workers: workers } = this.job;
    if (value == null) return null;
    let from = this.points.length - 1;
    if (this.points[from].workers !== workers) return null;
    while (from > 0 && this.points[from - 1].workers === workers) from -= 1;
    return { value, low, high, from: this.xs[from] };
  }

  #band({ value, low, high, from }, y, width) {
    const left = Math.min(this.x(from), width - RIGHT - 12);
    const parts = [draw("line", { class: "predicted", x1: left, x2: width - RIGHT, y1: y(value), y2: y(value) })];
    if (low != null && high != null) {
      parts.unshift(draw("rect", { class: "interval", x: left, y: y(high), width: width - RIGHT - left, height: Math.max(1, y(low) - y(high)) }));
    }
    return parts;
  }

  /** The loss on held-out samples: measured at single moments, so its points are marked. */
  #held(held, y) {
    const at = held.map((point) => [this.x(point.x).toFixed(1), y(point.loss).toFixed(1)]);
    const dots = at.map(([cx, cy]) => draw("circle", { class: "held-out", r: 2, cx, cy }));
    return [draw("path", { class: "line line-held-out", d: at.map(([x, height], index) => `${index ? "L" : "M"}${x} ${height}`).join("") }), ...dots];
  }

  #path(values, y, steps) {
    let path = "";
    let open = false;
    values.forEach((value, index) => {
      if (value == null || !Number.isFinite(value)) {
        open = false;
        return;
      }
      if (this.breaks.has(index)) open = false;
      const [x, height] = [this.x(this.xs[index]).toFixed(1), y(value).toFixed(1)];
      path += !open ? `M${x} ${height}` : steps ? `H${x}V${height}` : `L${x} ${height}`;
      // A lonely point is seen as a dot, by its round ends.
      if (!open) path += "h0";
      open = true;
    });
    return path;
  }

  #axis(top, width, [low, high]) {
    const text = (x, anchor, value) => draw("text", { x, y: top + 12, "text-anchor": anchor }, value);
    const name = (value) => (this.timed ? moment(value, high) : `step ${count(value)}`);
    const length = this.timed ? duration(high - low) : "";
    return [text(LEFT, "start", name(low)), text((LEFT + width - RIGHT) / 2, "middle", length), text(width - RIGHT, "end", name(high))];
  }

  #point(event) {
    if (!this.xs?.length || !this.x) return;
    const x = event.clientX - this.box.getBoundingClientRect().left;
    let best = 0;
    this.xs.forEach((value, index) => {
      if (Math.abs(this.x(value) - x) < Math.abs(this.x(this.xs[best]) - x)) best = index;
    });
    this.#mark(best);
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.points.length) return;
    const last = this.points.length - 1;
    this.#mark(this.at === null ? last : Math.max(0, Math.min(last, this.at + step)));
    event.preventDefault();
    event.stopPropagation();
  }

  #mark(index) {
    this.at = index;
    this.#label();
  }

  /** Values at the mark, or the last ones. */
  #label() {
    const index = this.at ?? this.points.length - 1;
    const point = this.points[index];
    if (!point) return;
    for (const plot of this.plots) {
      // The curve's last point is a mean of several steps; the list and the title tell of the last step alone.
      const last = this.at === null && plot.key === "loss" ? this.job.loss : null;
      const value = last ?? plot.value_of(point);
      const where = this.at === null ? "" : ` at step ${count(point.step)}`;
      const beside = plot.key === "rate" && this.at === null ? this.#beside() : "";
      const held = plot.key === "loss" ? this.#heldOut(index) : "";
      const other = plot.key === "loss" && this.other ? `, dashed: ${this.other.name}` : "";
      setText(plot.label, `${plot.text(value)}${where}${beside}${held}${other}`);
      const visible = this.at !== null && value != null ? null : "hidden";
      if (!plot.dot) continue;
      const x = this.x(this.xs[index]).toFixed(1);
      set(plot.rule, { x1: x, x2: x, visibility: this.at === null ? "hidden" : null });
      set(plot.dot, { cx: x, cy: value == null ? 0 : plot.y(value).toFixed(1), visibility: visible });
    }
  }

  /** The newest evaluation at a point, or of all. */
  #heldOut(index) {
    const point = this.held?.findLast(({ x }) => this.at === null || x <= this.xs[index]);
    if (!point) return "";
    return `, held-out ${loss(point.loss)}${point.accuracy == null ? "" : ` (${percent(point.accuracy)} right)`}`;
  }

  #beside() {
    const { predicted_examples_per_s: value, workers, target_workers } = this.job;
    return value == null || workers !== target_workers ? "" : `, predicted ${measured(value)}`;
  }
}

/** Round numbers that enclose `low` and `high` on a logarithmic axis: powers of ten, or with 2 and 5 between them. */
export function powers(low, high) {
  const of = (factors) => {
    const all = [];
    for (let power = Math.floor(Math.log10(low)) - 1; power <= Math.log10(high) + 1; power += 1) {
      for (const factor of factors) all.push(factor * 10 ** power);
    }
    const first = all.findLastIndex((value) => value <= low * 1.0001);
    const last = all.findIndex((value) => value >= high * 0.9999 && value > all[first]);
    return all.slice(first, last + 1);
  };
  const tens = of([1]);
  if (tens.length > 3) return tens.filter((_, index) => tens.length < 7 || index % 2 === 0 || index === tens.length - 1);
  return of([1, 2, 5]);
}

/** Two to five round numbers that enclose `low` and `high`; whole ones if need be. */
export function scale(low, high, whole) {
  if (!(high > low)) {
    if (low === 0) high = 1;
    else [low, high] = [low - Math.abs(low) / 10, high + Math.abs(high) / 10];
  }
  const rough = (high - low) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  if (whole) step = Math.max(1, Math.round(step));
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
}
