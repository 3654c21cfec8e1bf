// Says aloud what changed, for readers who do not see it: politely, and never a flood.

import { byId, setText } from "./page.js";

const EVERY_MS = 2500;
const NAMED = 3;

export class News {
  #changes = new Map();
  #timer = 0;

  /** Says a sentence now. */
  say(text) {
    setText(byId("news"), text);
  }

  /** Takes jobs whose state changed: `[name, state]`. */
  changes(list) {
    for (const [name, state] of list) this.#changes.set(name, state);
    if (this.#changes.size && !this.#timer) this.#timer = setTimeout(() => this.#tell(), EVERY_MS);
  }

  #tell() {
    this.#timer = 0;
    const all = [...this.#changes];
    this.#changes.clear();
    this.say(all.length > NAMED ? `${all.length} jobs changed their state` : all.map(([name, state]) => `${name} is ${state}`).join(", "));
  }
}
