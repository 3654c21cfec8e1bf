// Speaks to the daemon: one-off requests, and streams that come back by themselves.

/** An answer that is no success, in the daemon's words. */
export class Refused extends Error {
  constructor(status, body) {
    super(body.error || `the daemon answered with status ${status}`);
    this.status = status;
    this.hint = body.hint || "";
  }
}

/** Silence after which a stream counts as dead; the daemon says something at least every 15 s. */
const SILENCE_MS = 40_000;
/** A page that nobody sees gives its connections back after this long: browsers have few for one address. */
const HIDDEN_MS = 30_000;
const WAIT_FIRST_MS = 500;
const WAIT_MAX_MS = 10_000;

/** The session that a code buys; throws `Refused`. */
export async function openSession(code) {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch("/v1/sessions", { method: "POST", headers, body: JSON.stringify({ code }), cache: "no-store" });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, body);
  return body.session;
}

/** The daemon, for a page with a session. */
export class Api {
  constructor(session) {
    this.session = session;
    /** Seconds that the daemon's clock is ahead of this machine's. */
    this.ahead_s = 0;
    /** When it was last heard of. */
    this.heard_s = this.now();
  }

  /** Seconds since the Unix epoch, on the daemon's clock. */
  now() {
    return Date.now() / 1000 + this.ahead_s;
  }

  /** Sends a request and returns the answer's value; throws `Refused`. */
  async send(method, path, body) {
    const response = await this.#fetch(path, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    return text ? JSON.parse(text) : null;
  }

  /** Gets a value. */
  get(path, signal) {
    return this.#fetch(path, { signal }).then((response) => response.json());
  }

  async #fetch(path, options) {
    let response;
    try {
      response = await fetch(path, {
        ...options,
        cache: "no-store",
        headers: { ...options.headers, Authorization: `Bearer ${this.session}` },
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw Object.assign(new Error("the daemon does not answer"), { hint: "is it running? The page goes on by itself when it is back" });
    }
    if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
    const date = Date.parse(response.headers.get("Date"));
    // The header counts whole seconds, and an answer may be late: some of difference may be none.
    const ahead_s = (date - Date.now()) / 1000;
    if (Number.isFinite(ahead_s)) this.ahead_s = Math.abs(ahead_s) > 5 ? ahead_s : 0;
    return response;
  }

  /** Reads a stream once, until it ends; `onEvent(name, text)` hears each event. */
  async read(path, signal, onOpen, onEvent) {
    const silence = new AbortController();
    let timer;
    const heard = () => {
      this.heard_s = this.now();
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
    };
    timer = setTimeout(() => silence.abort(), SILENCE_MS);
    try {
      const response = await this.#fetch(path, { signal: AbortSignal.any([signal, silence.signal]) });
      heard();
      onOpen();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const events = new Events(onEvent);
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        heard();
        events.push(part.value);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Reads a stream, and again when it breaks, until `signal` aborts or the daemon refuses.
   *
   * `hears.open()`, `hears.event(name, text)`, `hears.lost()`, `hears.refused(error)`.
   */
  async follow(path, signal, hears) {
    let wait_ms = WAIT_FIRST_MS;
    const opened = () => {
      wait_ms = WAIT_FIRST_MS;
      hears.open?.();
    };
    while (!signal.aborted) {
      const unseen = whenUnseen(signal);
      try {
        await this.read(path, AbortSignal.any([signal, unseen.signal]), opened, hears.event);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && error.status < 500) return hears.refused?.(error);
      }
      unseen.stop();
      if (signal.aborted) return;
      hears.lost?.();
      if (document.hidden) await pause(Infinity, signal);
      else await pause(wait_ms * (0.75 + Math.random() / 2), signal);
      wait_ms = Math.min(2 * wait_ms, WAIT_MAX_MS);
    }
  }
}

/** Waits; less when the network comes back or the reader does. */
function pause(time_ms, signal) {
  return new Promise((resolve) => {
    const end = new AbortController();
    const done = () => {
      clearTimeout(timer);
      end.abort();
      resolve();
    };
    const timer = time_ms < Infinity ? setTimeout(done, time_ms) : 0;
    signal.addEventListener("abort", done, { signal: end.signal });
    window.addEventListener("online", done, { signal: end.signal });
    window.addEventListener("pageshow", done, { signal: end.signal });
    document.addEventListener("visibilitychange", () => document.hidden || done(), { signal: end.signal });
  });
}

/** A signal that aborts when nobody sees the page for a while. */
function whenUnseen(signal) {
  const unseen = new AbortController();
  const end = new AbortController();
  let timer = 0;
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => unseen.abort(), HIDDEN_MS);
  };
  const stop = () => {
    clearTimeout(timer);
    end.abort();
  };
  document.addEventListener("visibilitychange", look, { signal: end.signal });
  // A page that the browser keeps for the way back would keep its connections too.
  window.addEventListener("pagehide", () => unseen.abort(), { signal: end.signal });
  signal.addEventListener("abort", stop, { signal: end.signal });
  look();
  return { signal: unseen.signal, stop };
}

/** Cuts a stream into server-sent events. */
class Events {
  #rest = "";
  #name = "";
  #data = [];

  constructor(onEvent) {
    this.onEvent = onEvent;
  }

  push(text) {
    // A long event comes in many parts: only the new one is searched.
    if (!text.includes("\n")) {
      this.#rest += text;
      return;
    }
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line.endsWith("\r") ? line.slice(0, -1) : line);
  }

  #line(line) {
    if (line === "") {
      if (this.#data.length) this.onEvent(this.#name, this.#data.join("\n"));
      this.#name = "";
      this.#data = [];
    } else if (line.startsWith("event:")) {
      this.#name = line.slice(6).trim();
    } else if (line.startsWith("data:")) {
      this.#data.push(line.slice(line[5] === " " ? 6 : 5));
    }
  }
}
