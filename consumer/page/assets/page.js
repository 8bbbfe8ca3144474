"use strict";
// The page works without this file, which replaces the parts that have changed as they come.
(() => {
  const age = document.getElementById("age");
  const live = document.getElementById("live");
  const at = document.getElementById("at");
  const pause = document.getElementById("pause");
  const parts = [...document.querySelectorAll('[id^="part-"]')];
  const stale = Number(document.body.dataset.stale);
  const longest = 30000; // for which a selected text keeps its part as it is
  const shown = new Map(); // the HTML of parts, as it came
  const waiting = new Map(); // parts that are not shown yet, because a text in them is selected
  let seconds = Number(age.dataset.age);
  let since = Date.now();
  let source = null;

  function tick() {
    const now = seconds + (Date.now() - since) / 1000;
    age.textContent = now < 120 ? now.toFixed(0) + " s" : (now / 60).toFixed(0) + " min";
    live.classList.toggle("stale", now > stale);
    for (const [id, held] of [...waiting]) {
      if (Date.now() - held.since > longest) show(document.getElementById(id), held.html);
    }
  }

  function selectedIn(element) {
    const s = window.getSelection();
    return s && !s.isCollapsed && s.rangeCount > 0 && s.getRangeAt(0).intersectsNode(element);
  }

  function replace(element, html) {
    if (shown.get(element.id) === html) return; // a stream that begins anew has all parts
    if (!selectedIn(element)) {
      show(element, html);
      return;
    }
    const held = waiting.get(element.id);
    waiting.set(element.id, { html, since: held ? held.since : Date.now() });
  }

  const stops = (element) => [...element.querySelectorAll("a[href], button, input, [tabindex]")];

  // again finds the element that has had the focus after its part was replaced: by its id or its link, or else by its place.
  function again(element, had, place) {
    if (had.id) return document.getElementById(had.id);
    const href = had.getAttribute("href");
    return (href && element.querySelector('a[href="' + CSS.escape(href) + '"]')) || stops(element)[place];
  }

  function show(element, html) {
    waiting.delete(element.id);
    shown.set(element.id, html);
    const had = element.contains(document.activeElement) ? document.activeElement : null;
    const place = had ? stops(element).indexOf(had) : -1;
    const scrolled = [...element.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
    element.innerHTML = html;
    element.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
    local(element);
    const focus = had && again(element, had, place);
    if (focus) {
      if (had.tagName === "INPUT" && focus.tagName === "INPUT") focus.value = had.value;
      focus.focus({ preventScroll: true });
    }
  }

  // local shows the reader's own time of day above the times, which are UTC.
  function local(element) {
    for (const t of element.querySelectorAll("time[datetime]")) {
      const moment = new Date(t.getAttribute("datetime"));
      if (!Number.isNaN(moment.getTime())) t.title = moment.toLocaleString();
    }
  }

  // reload loads the page anew if that gives one, or a login: what is seen is worth more than the error of a proxy.
  function reload() {
    if (!source) return; // paused
    fetch(window.location.href, { cache: "no-store", redirect: "manual" }).then((answer) => answer.status < 500, () => false).then((ok) => {
      if (ok) window.location.reload();
      else window.setTimeout(reload, 5000);
    });
  }

  function start() {
    source = new EventSource(document.body.dataset.stream);
    for (const element of parts) source.addEventListener(element.id, (e) => replace(element, e.data));
    source.addEventListener("look", (e) => {
      const look = JSON.parse(e.data);
      seconds = Number(look.age);
      since = Date.now();
      document.title = look.title;
      at.textContent = look.at;
      at.setAttribute("datetime", look.stamp);
      local(at.parentElement);
      tick();
    });
    source.addEventListener("error", () => {
      if (source && source.readyState === EventSource.CLOSED) window.setTimeout(reload, 10000); // too many viewers, or a login has ended
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
    for (const [id, held] of [...waiting]) replace(document.getElementById(id), held.html);
  });
  window.setInterval(tick, 1000);
  local(document);
  tick();
  start();
})();
