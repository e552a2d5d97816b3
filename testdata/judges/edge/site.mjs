// Opens published sites in a headless Chromium, with the keys of a new node. The arguments are the URL of the sites, the program ronbox, and the node's data
// directory. It prints what it saw, and ends with 1 if something does not hold.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { withBrowser } from "./browser.mjs";

const [sites, ronbox, data] = process.argv.slice(2);
const site = sites + "/site.example", app = sites + "/app.example";
let bad = 0;
const holds = (yes, what) => {
  if (!yes) bad++;
  console.log((yes ? "holds  " : "FAILS  ") + what);
};
const until = async (done) => {
  for (let tries = 0; tries < 100 && !(await done()); tries++) await new Promise((next) => setTimeout(next, 100));
  return done();
};
const answer = (path, headers) => new Promise((done) => get(site + path, { headers }, (r) => { r.resume(); done(r); }));

const downloads = mkdtempSync(join(tmpdir(), "ronbox-downloads-"));
await withBrowser(async (open) => {
  const inspect = async (devtools, session) => {
    await devtools.call(undefined, "Browser.setDownloadBehavior", { behavior: "allow", downloadPath: downloads });
    const tabs = async () => (await devtools.call(undefined, "Target.getTargets")).targetInfos.filter((t) => t.url.endsWith("/inner.html") && t.type === "page").length;
    const before = await tabs();
    await devtools.call(session, "Runtime.evaluate", { expression: `document.getElementById("blank").click(); document.getElementById("dl").click()`, userGesture: true });
    const tab = await until(async () => (await tabs()) > before), download = await until(() => existsSync(join(downloads, "d.zip")));
    const { frameTree } = await devtools.call(session, "Page.getFrameTree");
    const { executionContextId } = await devtools.call(session, "Page.createIsolatedWorld", { frameId: frameTree.childFrames[0].frame.id });
    const inner = await devtools.call(session, "Runtime.evaluate", { contextId: executionContextId, expression: "document.body.textContent.trim()" });
    return { opened: before, tab, download, frame: inner.result?.value };
  };
  const page = await open({
    url: site + "/", ready: `document.querySelectorAll("#o li").length >= 5`, inspect,
    evaluate: `[...document.querySelectorAll("#o li")].map((li) => li.textContent).sort().join(" ") + " app=" + document.documentElement.dataset.app`,
  });
  const { opened, tab, download, frame } = page.seen;
  holds(["fetch=ok", "font=ok", "import=ok", "module=ok"].every((r) => page.value.includes(r)), `fetch, font and modules work: ${page.value}`);
  holds(/app=(gz|br)/.test(page.value), `a compressed script is sent instead of the plain one`);
  holds(frame === "inner", `the page shows a frame of itself: ${frame}`);
  holds(opened > 0 && tab, `window.open and a link open tabs: ${opened} ${tab}`);
  holds(download, `a link downloads a file`);
  holds(page.complaints.length === 0, `no complaint ${page.complaints.join("; ")}`);

  const deep = await open({ url: app + "/orders/17", ready: `!!document.getElementById("at")?.textContent`, evaluate: `document.getElementById("at").textContent` });
  holds(deep.value === new URL(app).pathname + "/orders/17" && deep.complaints.length === 0, `200.html draws an address of an app: ${deep.value}`);

  const [session] = execFileSync(ronbox, ["--data-dir", data, "console", "--print"]).toString().match(/http\S+/);
  const entered = await open({ url: session, ready: `location.pathname !== "/console/enter" && !!document.querySelector("main h1")`, evaluate: `document.querySelector("nav") !== null` });
  holds(entered.ready && entered.value, `a session of the console is open`);
  const { value } = await open({ url: site + "/hostile", ready: `!!document.documentElement?.dataset.tried`, evaluate: `document.documentElement.dataset.tried` });
  const tried = JSON.parse(value ?? "{}");
  holds(Object.keys(tried).length === 9 && Object.values(tried).every((v) => v.startsWith("refused")), `a hostile page reads nothing of it: ${value}`);
});
rmSync(downloads, { recursive: true });

for (const [path, accept, status] of [["/about", "*/*", 200], ["/none", "text/html", 404], ["/none.js", "*/*", 404]]) {
  const r = await answer(path, { Accept: accept });
  holds(r.statusCode === status && r.headers["content-type"].startsWith("text/html"), `${path} for ${accept}: ${r.statusCode}`);
}
const plain = await answer("/app.js", {}), coded = await answer("/app.js", { "Accept-Encoding": "gzip, br" });
holds(!plain.headers["content-encoding"] && coded.headers["content-encoding"] && coded.headers["content-type"] === plain.headers["content-type"] &&
  coded.headers.etag !== plain.headers.etag && coded.headers.vary.includes("Accept-Encoding"), `app.js as ${coded.headers["content-encoding"]}: with its own tag`);
console.log(bad ? `${bad} do not hold` : "all holds");
process.exit(bad ? 1 : 0);
