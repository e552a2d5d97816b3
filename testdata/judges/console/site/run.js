// Tries to read what belongs to the node's origin, and notes in data-tried what it got.
(async () => {
  const tried = { style: getComputedStyle(document.querySelector("h1")).color, origin: self.origin };
  const attempt = async (name, read) => {
    try {
      tried[name] = String(await read());
    } catch (e) {
      tried[name] = "refused: " + e.name;
    }
  };
  await attempt("cookie", () => document.cookie);
  await attempt("storage", () => localStorage.length);
  await attempt("database", () => new Promise((done, failed) => {
    const r = indexedDB.open("x");
    r.onsuccess = () => done("open");
    r.onerror = () => failed(r.error);
  }));
  await attempt("worker", async () => (await navigator.serviceWorker.register("run.js")).scope);
  await attempt("console", async () => (await fetch("/console/", { credentials: "include" })).text());
  await attempt("api", async () => (await fetch("/v1/accounts", { credentials: "include" })).text());
  await attempt("opaque", async () => (await (await fetch("/console/", { mode: "no-cors", credentials: "include" })).text()).length);
  await attempt("frame", () => new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.onload = () => done(frame.contentDocument === null ? "closed" : frame.contentDocument.body.textContent);
    frame.src = "/console/";
    document.body.append(frame);
  }));
  await attempt("module", async () => Object.keys(await import("/edge/sites/site.example/style.css")).length);
  document.documentElement.dataset.tried = JSON.stringify(tried);
})();
