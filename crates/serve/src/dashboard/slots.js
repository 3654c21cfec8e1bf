// Who holds which slot over time: a bar per job and slot, on a time axis that ends now.

import { byId, draw, make, set, setText, tip } from "./page.js";
import { duration, minute, moment } from "./words.js";

const AXIS = 20;
/** Height from which the slots scroll under their axis, and what the bar for that takes. */
const SCROLL = 300;
const SCROLL_BAR = 12;
/** Distances between marks of the axis, in seconds, and how many pixels a mark needs. */
const GRID_S = [60, 120, 180, 300, 600, 900, 1800];
const MARK = 76;
const pen = document.createElement("canvas").getContext("2d");

export class Slots {
  /** `hears.open(name)` is told which bar was chosen, `hears.say(text)` what a reader without a pointer stands on. */
  constructor(store, hears) {
    this.store = store;
    this.hears = hears;
    this.minutes = 5;
    this.bars = new Map();
    this.current = null;
    this.chosen = null;
    this.now = 0;
    this.box = byId("gantt");
    set(this.box, { tabindex: 0, role: "group", "aria-label": "Slots over time. Arrow keys walk from bar to bar, Enter opens the job." });
    this.box.addEventListener("keydown", (event) => this.#key(event));
    this.box.addEventListener("blur", () => this.#mark(null));
    this.box.addEventListener("pointermove", (event) => this.#point(event));
    this.box.addEventListener("pointerleave", () => tip(""));
    this.box.addEventListener("click", (event) => {
      const bar = this.#barOf(event.target);
      if (bar) hears.open(bar.span.job, false);
    });
    for (const button of document.querySelectorAll("[data-minutes]")) {
      button.addEventListener("click", () => this.#choose(Number(button.dataset.minutes)));
    }
    new ResizeObserver(() => this.#rebuild()).observe(this.box);
  }

  #choose(minutes) {
    this.minutes = minutes;
    for (const button of document.querySelectorAll("[data-minutes]")) {
      set(button, { "aria-pressed": Number(button.dataset.minutes) === minutes });
    }
    this.#rebuild();
  }

  /** Lets the bars of one job stand out; of none with `null`. */
  highlight(name) {
    if (name === this.chosen) return;
    this.chosen = name;
    for (const bar of this.bars.values()) this.#fade(bar);
  }

  #fade({ group, span }) {
    group.classList.toggle("faded", this.chosen !== null && span.job !== this.chosen);
  }

  /** All slots, in order, with their labels. */
  #slots() {
    const nodes = this.store.cluster?.nodes ?? [];
    return nodes.flatMap((node, number) => node.slots.map((_, slot) => ({
      key: `${number} ${slot}`,
      label: node.name ? `${node.name}.${slot}` : nodes.length > 1 ? `${node.device_type} ${number}.${slot}` : `${node.device_type} ${slot}`,
      title: [
        node.speed === 1 ? node.device_type : `${node.device_type}, ${node.speed} times as fast as the fastest`,
        node.down == null ? null : `takes no jobs: ${node.down}`,
        node.taken ? `the cluster's other users hold ${node.taken} of the node's ${node.slots.length} slots` : null,
      ].filter(Boolean).join("; "),
      down: node.down != null,
    })));
  }

  /** Draws what does not move. Within the moving group one second has a fixed width, so a tick changes little. */
  #rebuild() {
    const slots = this.#slots();
    const full = this.box.clientWidth;
    this.shown = JSON.stringify(slots);
    if (!slots.length || full < 150) return;
    const row = slots.length > 24 ? 14 : slots.length > 8 ? 18 : 24;
    const gap = row > 14 ? 4 : 2;
    const height = slots.length * (row + gap);
    const width = full - (height > SCROLL ? SCROLL_BAR : 0);
    pen.font = `12px ${getComputedStyle(this.box).fontFamily}`;
    const label = Math.min(12 + Math.max(...slots.map((slot) => pen.measureText(slot.label).width)), width / 3);
    Object.assign(this, { row, plot: width - label, scale: (width - label) / (60 * this.minutes), origin: this.now });
    this.places = new Map(slots.map(({ key }, index) => [key, index * (row + gap)]));
    this.moving = draw("g");
    this.grid = draw("g", { class: "grid" });
    this.times = draw("g", { class: "axis" });
    const tracks = slots.map(({ key, down }) => draw("rect", { class: down ? "track down" : "track", y: this.places.get(key), width: this.plot, height: row, rx: 3 }));
    const names = slots.map(({ key, label: text, title }) => {
      const name = draw("text", { x: 0, y: this.places.get(key) + row / 2, "dominant-baseline": "central", class: "label" }, text);
      name.append(draw("title", {}, title));
      return name;
    });
    // A drawing within a drawing cuts off what lies outside.
    const inner = draw("svg", { x: label, width: this.plot, height }, ...tracks, this.grid, this.moving);
    const axis = draw("svg", { x: label, width: this.plot, height: AXIS }, this.times);
    this.bars.clear();
    this.box.replaceChildren(
      make("div", { class: "scroll" }, draw("svg", { width, height, "aria-hidden": "true" }, ...names, inner)),
      draw("svg", { width, height: AXIS, "aria-hidden": "true" }, axis),
    );
    pen.font = `550 ${pen.font}`;
    this.render(this.now);
  }

  /** Brings the chart to `now`. */
  render(now) {
    this.now = now;
    if (this.shown !== JSON.stringify(this.#slots())) return this.#rebuild();
    if (!this.moving) return;
    if (!this.bars.size && !this.origin) this.origin = now;
    const start = now - 60 * this.minutes;
    set(this.moving, { transform: `translate(${(this.plot - (now - this.origin) * this.scale).toFixed(2)})` });
    const seen = new Set();
    for (const [key, span] of this.store.spans) {
      if ((span.end_s ?? now) <= start || !this.places.has(`${span.node} ${span.slot}`)) continue;
      seen.add(key);
      this.#draw(key, span, start, now);
    }
    for (const [key, bar] of this.bars) {
      if (seen.has(key)) continue;
      bar.group.remove();
      this.bars.delete(key);
      if (this.current === key) this.#mark(null);
    }
    this.#axis(start, now);
  }

  #draw(key, span, start, now) {
    let bar = this.bars.get(key);
    if (!bar) {
      const group = draw("g", { class: `bar job-${this.store.colour(span.job)}` });
      bar = { group, rect: draw("rect", { y: this.places.get(`${span.node} ${span.slot}`), height: this.row, rx: 3 }), text: null };
      group.append(bar.rect);
      this.moving.append(group);
      this.bars.set(key, bar);
      bar.width = pen.measureText(span.job).width;
      this.#fade({ group, span });
    }
    // What neither grows nor leaves at the left is as it was.
    if (bar.span === span && span.end_s != null && span.start_s > start && bar.still) return;
    bar.span = span;
    bar.still = span.end_s != null && span.start_s > start;
    const end = span.end_s ?? now;
    const x = (span.start_s - this.origin) * this.scale;
    set(bar.rect, { x: x.toFixed(2), width: Math.max(1, (end - span.start_s) * this.scale - 1).toFixed(2) });
    const from = Math.max(span.start_s, start);
    const fits = (end - from) * this.scale > bar.width + 12 && this.row > 14;
    if (fits && !bar.text) {
      bar.text = draw("text", { y: this.places.get(`${span.node} ${span.slot}`) + this.row / 2, "dominant-baseline": "central" }, span.job);
      bar.group.append(bar.text);
    } else if (!fits && bar.text) {
      bar.text.remove();
      bar.text = null;
    }
    if (bar.text) set(bar.text, { x: ((from - this.origin) * this.scale + 6).toFixed(2) });
  }

  #axis(start, now) {
    const every = GRID_S.find((seconds) => seconds * this.scale >= MARK) ?? GRID_S.at(-1);
    const first = Math.ceil(start / every) * every;
    const marks = [];
    for (let time = first; time < now; time += every) marks.push(time);
    while (this.grid.children.length < marks.length) {
      this.grid.append(draw("line", { y1: 0, y2: "100%" }));
      this.times.append(draw("text", { y: 14, "text-anchor": "middle" }));
    }
    while (this.grid.children.length > marks.length) {
      this.grid.lastChild.remove();
      this.times.lastChild.remove();
    }
    marks.forEach((time, index) => {
      const x = (time - start) * this.scale;
      set(this.grid.children[index], { x1: x.toFixed(1), x2: x.toFixed(1) });
      const text = this.times.children[index];
      setText(text, minute(time));
      // At the edges a text would be cut.
      set(text, { x: x.toFixed(1), visibility: x < MARK / 3 || x > this.plot - MARK / 3 ? "hidden" : null });
    });
  }

  #barOf(element) {
    const group = element.closest?.("g.bar");
    return group ? [...this.bars.values()].find((bar) => bar.group === group) : null;
  }

  #words({ span }) {
    const end = span.end_s ?? this.now;
    const until = span.end_s == null ? "until now" : `to ${moment(span.end_s, this.now)}`;
    const slot = this.#slots().find(({ key }) => key === `${span.node} ${span.slot}`);
    return `${span.job} on ${slot?.label}, from ${moment(span.start_s, this.now)} ${until}, ${duration(end - span.start_s)}`;
  }

  #point(event) {
    const bar = this.#barOf(event.target);
    tip(bar ? this.#words(bar) : "", event.clientX, event.clientY);
  }

  #mark(key) {
    this.bars.get(this.current)?.group.classList.remove("current");
    this.current = key;
    const bar = this.bars.get(key);
    if (!bar) return tip("");
    bar.group.classList.add("current");
    const { left, bottom } = bar.rect.getBoundingClientRect();
    const text = this.#words(bar);
    tip(text, Math.max(left, this.box.getBoundingClientRect().left), bottom - 12);
    this.hears.say(text);
  }

  #key(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const bar = this.bars.get(this.current);
    if (event.key === "Enter" && bar) this.hears.open(bar.span.job, true);
    else if (event.key === "Escape" && bar) this.#mark(null);
    else if (step) this.#walk(bar?.span, ...step);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Goes to the neighbour in time, or to the bar of the next slot that is nearest in time. */
  #walk(from, along, across) {
    const place = (span) => this.places.get(`${span.node} ${span.slot}`);
    const all = [...this.bars].map(([key, { span }]) => ({ key, span, y: place(span) }));
    const end = (span) => span.end_s ?? Infinity;
    const latest = (bars) => bars.sort((a, b) => end(b.span) - end(a.span))[0];
    const earliest = (bars) => bars.sort((a, b) => a.span.start_s - b.span.start_s)[0];
    let next;
    if (!from) {
      next = latest(all.filter(({ y }) => y === Math.min(...all.map((bar) => bar.y))));
    } else if (along) {
      const row = all.filter(({ y }) => y === place(from));
      next = along < 0 ? latest(row.filter(({ span }) => end(span) <= from.start_s)) : earliest(row.filter(({ span }) => span.start_s >= end(from)));
    } else {
      const beyond = all.filter(({ y }) => across * (y - place(from)) > 0);
      const nearest = Math.min(...beyond.map(({ y }) => across * y));
      const row = beyond.filter(({ y }) => across * y === nearest);
      next = row.sort((a, b) => Math.abs(a.span.start_s - from.start_s) - Math.abs(b.span.start_s - from.start_s))[0];
    }
    if (next) this.#mark(next.key);
  }
}

/** The line of utilisation: values from 0 to 1, over the full width. */
export function spark(svg, values) {
  const [width, height] = [svg.width.baseVal.value, svg.height.baseVal.value];
  const x = (index) => (index / (values.length - 1)) * width;
  const y = (value) => height - 2 - value * (height - 4);
  const line = values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  if (!svg.firstChild) svg.append(draw("polygon"), draw("polyline"));
  set(svg.firstChild, { points: `0,${height} ${line} ${width},${height}` });
  set(svg.lastChild, { points: line });
}
