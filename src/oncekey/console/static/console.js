// Keeps a page fresh: every now and then it is fetched again, and the parts of it that are marked and have changed are
// replaced. Without this script a reload does the same.
"use strict";

(() => {
  const live = document.getElementById("live");
  const wrong = document.getElementById("wrong");
  if (wrong) wrong.focus();
  if (!live) return;

  const every = Number(document.body.dataset.live);
  const said = live.querySelector("[role=status]");
  const pause = live.querySelector("button");
  let paused = false;
  let misses = 0;
  let timer = 0;

  const say = (words, on) => {
    if (said.textContent !== words) said.textContent = words; // a screen reader speaks each change, so only changes
    live.classList.toggle("off", !on);
  };

  // A form that somebody is writing in stays as it is; the server compares what it was made for.
  const busy = (part) => part.querySelector("details[open] form") !== null || part.querySelector("input:focus, textarea:focus") !== null;

  // Where the keyboard is: by its link or its words, for the element itself is replaced.
  const place = (part) => {
    const at = document.activeElement;
    if (!at || at === document.body || !part.contains(at)) return () => {};
    const same = (other) => other.tagName === at.tagName && other.getAttribute("href") === at.getAttribute("href") && other.textContent === at.textContent;
    return (fresh) => [...fresh.querySelectorAll(at.tagName)].find(same)?.focus({ preventScroll: true });
  };

  const replace = (part, fresh) => {
    if (part.innerHTML === fresh.innerHTML || busy(part)) return;
    const known = new Set([...part.querySelectorAll("[data-key]")].map((row) => row.dataset.key));
    const settle = place(part);
    const scrolled = part.scrollLeft;
    part.replaceChildren(...document.importNode(fresh, true).childNodes);
    for (const row of part.querySelectorAll("[data-key]")) if (!known.has(row.dataset.key)) row.classList.add("fresh");
    part.scrollLeft = scrolled;
    settle(part);
  };

  const update = async () => {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(15000) });
    if (answer.status === 401) return leave("your session has ended");
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (paused) return;
    for (const part of document.querySelectorAll("[data-fresh]")) {
      const fresh = page.getElementById(part.id);
      if (fresh) replace(part, fresh);
    }
    misses = 0;
    say("live", true);
  };

  const leave = (words) => {
    paused = true;
    pause.remove();
    say(words, false);
    const link = document.createElement("a");
    link.href = location.href;
    link.textContent = "Sign in";
    live.append(link);
  };

  const tick = async () => {
    clearTimeout(timer);
    if (paused) return;
    if (!document.hidden) {
      try {
        await update();
      } catch {
        misses += 1;
        say("not reached, trying again", false);
      }
    }
    timer = setTimeout(tick, every * Math.min(8, 1 + misses));
  };

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    say(paused ? "paused" : "live", !paused);
    tick();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
  live.hidden = false;
  timer = setTimeout(tick, every);
})();
