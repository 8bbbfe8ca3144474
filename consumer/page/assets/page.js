"use strict";
// The page works without this file, which replaces the parts that have changed as they come.
(() => {
  const age = document.getElementById("age");
  const live = document.getElementById("live");
  const at = document.getElementById("at");
  const pause = document.getElementById("pause");
  const waiting = new Map(); // parts that are not shown yet, because a text in them is selected
  let seconds = Number(age.dataset.age);
  let since = Date.now();
  let source = null;

  function tick() {
    const now = seconds + (Date.now() - since) / 1000;
    age.textContent = now < 120 ? now.toFixed(0) + " s" : (now / 60).toFixed(0) + " min";
    live.classList.toggle("stale", now > 10);
  }

  function selectedIn(element) {
    const s = window.getSelection();
    return s && !s.isCollapsed && s.rangeCount > 0 && s.getRangeAt(0).intersectsNode(element);
  }

  // key finds an element again after its part was replaced.
  function key(element) {
    if (element.id) return "#" + CSS.escape(element.id);
    const href = element.getAttribute("href");
    return href ? 'a[href="' + CSS.escape(href) + '"]' : "";
  }

  function replace(id, html) {
    const element = document.getElementById(id);
    if (!element) return;
    if (selectedIn(element)) {
      waiting.set(id, html);
      return;
    }
    waiting.delete(id);
    const active = document.activeElement;
    const focused = element.contains(active) ? key(active) : "";
    const typed = active && active.tagName === "INPUT" && element.contains(active) ? active.value : null;
    const scrolled = [...element.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
    element.innerHTML = html;
    element.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
    local(element);
    const again = focused && element.querySelector(focused);
    if (again) {
      if (typed !== null) again.value = typed;
      again.focus({ preventScroll: true });
    }
  }

  // local shows the reader's own time of day above the times, which are UTC.
  function local(element) {
    for (const t of element.querySelectorAll("time[datetime]")) {
      const moment = new Date(t.getAttribute("datetime"));
      if (!Number.isNaN(moment.getTime())) t.title = moment.toLocaleString();
    }
  }

  function start() {
    source = new EventSource(document.body.dataset.stream);
    source.addEventListener("part", (e) => {
      const part = JSON.parse(e.data);
      replace(part.id, part.html);
    });
    source.addEventListener("look", (e) => {
      const look = JSON.parse(e.data);
      seconds = Number(look.age);
      since = Date.now();
      document.title = look.title;
      at.textContent = look.at;
      tick();
    });
    source.addEventListener("error", () => {
      if (source && source.readyState === EventSource.CLOSED) { // refused: too many viewers, or a login has ended
        window.setTimeout(() => window.location.reload(), 10000);
      }
    });
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    if (source) {
      source.close();
      source = null;
    } else {
      start();
    }
    pause.textContent = source ? "pause" : "go on";
  });
  document.addEventListener("selectionchange", () => {
    for (const [id, html] of [...waiting]) replace(id, html);
  });
  window.setInterval(tick, 1000);
  local(document);
  tick();
  start();
})();
