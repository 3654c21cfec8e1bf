// What the keys do, wherever the focus is outside of a field or a dialogue.

import { byId } from "./page.js";

/** Listens. */
export function keys(page) {
  byId("help").addEventListener("click", () => byId("keys").showModal());
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    const field = event.target.closest("input, select, textarea");
    if (field) {
      if (event.key === "Escape" || (event.key === "Enter" && field.id === "filter")) leave(page, field, event);
      return;
    }
    if (press(page, event)) event.preventDefault();
  });
}

/** Goes from a field to the jobs; Esc also empties the filter. */
function leave(page, field, event) {
  if (field.closest("form")) return;
  if (event.key === "Escape" && field.id === "filter" && field.value) page.jobs.clear();
  field.blur();
  page.jobs.move(0);
  event.preventDefault();
}

function press(page, event) {
  const { jobs, detail } = page;
  switch (event.key) {
    case "/":
      byId("filter").focus();
      byId("filter").select();
      return true;
    case "?":
      byId("keys").showModal();
      return true;
    case "Escape":
      page.close();
      return true;
    case "j":
    case "k":
      return walk(page, event.key === "j" ? 1 : -1);
    case "ArrowDown":
    case "ArrowUp":
      // Elsewhere the arrows scroll.
      return event.target.closest("#job-rows") ? walk(page, event.key === "ArrowDown" ? 1 : -1) : false;
    case "Home":
    case "End":
      return event.target.closest("#job-rows") ? walk(page, event.key === "End" ? Infinity : -Infinity) : false;
    case "Enter":
      // What has a use for it itself keeps it.
      if (event.target.closest("a, button, summary, .log") || !jobs.selected) return false;
      page.open(jobs.selected, true);
      return true;
    case "s":
    case "r":
    case "c": {
      const name = detail.name ?? jobs.selected;
      if (!name) return false;
      page.act({ s: "suspend", r: "resume", c: "cancel" }[event.key], name);
      return true;
    }
    default:
      return false;
  }
}

function walk(page, places) {
  const name = page.jobs.move(places);
  if (name && page.detail.name) page.open(name, false);
  return name !== null;
}
