// The console works without this module. With it, a code in the address enters by itself, times
// are shown in the reader's zone, and the overview stays current.

const code = location.hash.slice(1);
const form = document.getElementById("code-form");
if (form && code) {
  history.replaceState(null, "", location.pathname); // the code leaves the address at once
  form.elements.code.value = code;
  form.submit();
}

const local = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });

function showTimes(root) {
  for (const t of root.querySelectorAll("time[datetime]")) {
    const at = new Date(t.dateTime);
    if (!Number.isNaN(at.getTime())) {
      t.title = t.dateTime;
      t.textContent = local.format(at);
    }
  }
}
showTimes(document);

// refresh replaces the live part of the page by that of the same page as it is now.
async function refresh(live) {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href, { headers: { "X-Console-Live": "1" }, redirect: "manual" });
    if (answer.type === "opaqueredirect") return location.reload(); // the session has ended
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const next = page.querySelector(`[data-live="${live.dataset.live}"]`);
    if (!next) return;
    showTimes(next);
    live.replaceChildren(...next.childNodes);
  } catch {
    // the node does not answer now; the next try is soon
  }
}

const live = document.querySelector("[data-live]");
if (live) setInterval(() => refresh(live), 2000);

for (const f of document.querySelectorAll("form[method=post]")) {
  f.addEventListener("submit", () => setTimeout(() => f.querySelector("button").disabled = true));
}
