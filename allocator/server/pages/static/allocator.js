// Keeps a page up to date: follows the events of the service and loads its content again.
// Everything on the pages works without it.
"use strict";
(() => {
  const LEAST_MS = 5000, POLL_MS = 30000;
  const main = document.querySelector("main[data-live]");
  const note = document.getElementById("updated");

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-confirm]");
    if (button && !window.confirm(button.dataset.confirm)) event.preventDefault();
  });
  if (!main || new URLSearchParams(location.search).has("explain")) return;

  let last = Date.now(), waiting = null, source = null;

  function isBusy() {
    const active = document.activeElement;
    return document.hidden || (active && main.contains(active)
      && active.matches("input, select, textarea, button"));
  }

  async function load() {
    waiting = null;
    if (isBusy()) return later(LEAST_MS);
    last = Date.now();
    try {
      const url = new URL(location.href);
      url.searchParams.delete("done");
      const answer = await fetch(url, { headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) return;
      const text = await answer.text();
      if (isBusy()) return later(LEAST_MS);
      const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("main");
      const open = [...main.querySelectorAll("details[open]")].map((one) => one.id);
      const focus = document.activeElement && main.contains(document.activeElement)
        ? document.activeElement.getAttribute("href") : null;
      main.replaceChildren(...fresh.childNodes);
      open.forEach((id) => { const one = document.getElementById(id); if (one) one.open = true; });
      if (focus) {
        const link = [...main.querySelectorAll("a")].find((a) => a.getAttribute("href") === focus);
        if (link) link.focus({ preventScroll: true });
      }
      note.textContent = `Updated ${new Date().toISOString().slice(11, 19)}.`;
    } catch { /* the service is away: the next event or look tries again */ }
  }

  function later(least) {
    if (waiting === null) {
      waiting = setTimeout(load, Math.max(least, last + LEAST_MS * (1 + Math.random()) - Date.now()));
    }
  }

  function follow() {
    source = new EventSource("/api/v1/events");
    for (const kind of ["job", "round", "pools", "counts", "nodes", "reset"]) {
      source.addEventListener(kind, () => later(200));
    }
  }

  follow();
  setInterval(() => later(0), POLL_MS);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) later(0); });
  window.addEventListener("pagehide", () => source.close());
})();
