// The console works without this module. With it, a code in the address enters by itself, times
// are shown in the reader's zone, and the overview stays current.

// A fragment survives a redirect to the entrance: what has not the form of a code is left alone.
function enterByCode() {
  const code = location.pathname === "/console/enter" && /^#([\w-]{43})$/.exec(location.hash)?.[1];
  const form = document.getElementById("code-form");
  if (!form || !code) return;
  history.replaceState(null, "", location.pathname + location.search); // the code leaves the address at once
  form.elements.code.value = code;
  form.submit();
}
enterByCode();
addEventListener("hashchange", enterByCode); // a second link is opened in the same tab

// showTimes writes times as the node does, but in the reader's zone.
function showTimes(root) {
  for (const t of root.querySelectorAll("time[datetime]")) {
    const at = new Date(t.dateTime);
    if (!Number.isNaN(at.getTime())) {
      t.title = at.toISOString().slice(0, 19).replace("T", " ") + " UTC";
      t.textContent = at.toLocaleString("sv-SE");
    }
  }
}
showTimes(document);

// morph makes the children of an element those of another, and keeps the nodes that stay: with them
// the focus, the selection, open details, what was typed and how far a table was scrolled.
function morph(old, next) {
  const olds = [...old.childNodes], nexts = [...next.childNodes];
  nexts.forEach((to, i) => {
    const from = olds[i];
    if (!from) return old.append(to);
    if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName || from.id !== to.id) return from.replaceWith(to);
    if (from.nodeType !== Node.ELEMENT_NODE) {
      if (from.data !== to.data) from.data = to.data;
      return;
    }
    for (const { name } of [...from.attributes]) {
      if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
    }
    for (const { name, value } of to.attributes) {
      if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    }
    morph(from, to);
  });
  for (const from of olds.slice(nexts.length)) from.remove();
}

// showStale says that the live part of the page is old, or takes that back.
function showStale(stale) {
  const old = document.getElementById("stale");
  if (!stale) return old?.remove();
  if (old) return;
  const p = document.createElement("p");
  p.id = "stale";
  p.className = "notice";
  p.setAttribute("role", "status");
  document.getElementById("main").prepend(p);
  p.textContent = "The node does not answer. This page shows an older state."; // after prepend, so that it is read out
}

// refresh makes the live part of the page that of the same page as it is now.
async function refresh(live) {
  try {
    const answer = await fetch(location.href, {
      headers: { "X-Console-Live": "1" }, redirect: "manual", signal: AbortSignal.timeout(10000),
    });
    const page = new DOMParser().parseFromString(answer.ok ? await answer.text() : "", "text/html");
    const next = page.querySelector(`[data-live="${live.dataset.live}"]`);
    if (answer.type === "opaqueredirect" || answer.ok && !next) return location.reload(); // the session has ended
    showStale(!answer.ok);
    if (!answer.ok) return;
    showTimes(next);
    morph(live, next);
  } catch {
    showStale(true); // the next try is soon
  }
}

// A tab asks every two seconds, after the answer before, and not while it is hidden.
const live = document.querySelector("[data-live]");
if (live) {
  let timer;
  const tick = async () => {
    clearTimeout(timer);
    if (document.hidden) return;
    await refresh(live);
    clearTimeout(timer);
    timer = setTimeout(tick, 2000);
  };
  document.addEventListener("visibilitychange", tick);
  timer = setTimeout(tick, 2000);
}

for (const f of document.querySelectorAll("form[method=post]")) {
  f.addEventListener("submit", () => setTimeout(() => f.querySelector("button").disabled = true));
}
