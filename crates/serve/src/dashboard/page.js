// Makes and changes elements. Text is always set as text: what a job is called can never become markup.

const SVG = "http://www.w3.org/2000/svg";

/** The element of the page with this id. */
export const byId = (id) => document.getElementById(id);

/** A new element; children are elements or strings. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  set(element, attributes);
  element.append(...children);
  return element;
}

/** A new element of a drawing. */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  set(element, attributes);
  element.append(...children);
  return element;
}

/** Sets attributes that differ; `null` removes one. */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) {
      if (element.hasAttribute(name)) element.removeAttribute(name);
    } else if (element.getAttribute(name) !== String(value)) {
      element.setAttribute(name, value);
    }
  }
}

/** Sets the text of an element if it differs. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Shows or hides an element. */
export function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

/** The sign of a state. */
export function shape(state) {
  return draw("svg", { class: "shape", "aria-hidden": "true" }, draw("use", { href: `#shape-${state}` }));
}

/** Makes `container` hold exactly `elements` in this order, and moves only those that are in the wrong place. */
export function arrange(container, elements) {
  const wanted = new Set(elements);
  for (const child of [...container.children]) if (!wanted.has(child)) child.remove();
  let place = container.firstElementChild;
  for (const element of elements) {
    if (element === place) place = place.nextElementSibling;
    else container.insertBefore(element, place);
  }
}

/** Asks in a dialogue that Esc and "No" leave; resolves to whether the answer is yes. */
export function ask(title, text, yes) {
  const dialog = byId("question");
  setText(byId("question-title"), title);
  setText(byId("question-text"), text);
  setText(byId("question-yes"), yes);
  dialog.showModal();
  return new Promise((resolve) => {
    // Not by its event `close`, which may come when the dialogue already asks the next question.
    const answered = new AbortController();
    const answer = (yes) => {
      answered.abort();
      resolve(yes);
    };
    dialog.addEventListener("submit", (event) => answer(event.submitter?.value === "yes"), answered);
    dialog.addEventListener("cancel", () => answer(false), answered);
  });
}

let problemTimer = 0;

/** Says for a while what went wrong and what to do. */
export function complain(error) {
  const box = byId("problem");
  setText(box, [error.message, error.hint].filter(Boolean).join(" — "));
  show(box, true);
  clearTimeout(problemTimer);
  problemTimer = setTimeout(() => show(box, false), 10_000);
}

/** Shows what lies under the pointer or the focus; without text nothing. */
export function tip(text, x, y) {
  const box = byId("tip");
  show(box, Boolean(text));
  if (!text) return;
  setText(box, text);
  const { width, height } = box.getBoundingClientRect();
  const left = Math.max(8, Math.min(x + 12, document.documentElement.clientWidth - width - 8));
  const top = y + 16 + height > window.innerHeight ? y - height - 8 : y + 16;
  box.style.left = `${left}px`;
  box.style.top = `${Math.max(8, top)}px`;
}
