// Opens pages in a headless Chromium, one after the other, and tells of each what it asked for, what it complained of, and the picture it drew.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// browse opens each URL and waits, a minute at most, until the expression ready is true in it. It gives {url, ready, value, requests, complaints, picture},
// where value is what the expression evaluate gives.
export function browse(urls, ready, evaluate = "undefined") {
  return withBrowser(async (open) => {
    const out = [];
    for (const url of urls) out.push(await open({ url, ready, evaluate }));
    return out;
  });
}

// withBrowser calls run with a function that opens a page in a new browser, and gives what run gives. The page may have a width and a dark scheme, and
// plain runs none of its scripts; whole asks for a picture of all of it. inspect is called with the connection and the session of the page, and page.seen is
// what it gives.
export async function withBrowser(run) {
  const dir = mkdtempSync(join(tmpdir(), "ronbox-browser-"));
  const chrome = spawn("chromium", [
    "--headless=new", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist", "--no-first-run", "--disable-popup-blocking",
    "--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe", "--window-size=1000,700", "--user-data-dir=" + dir, "about:blank",
  ], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  const gone = new Promise((done) => chrome.once("exit", done));
  try {
    const devtools = new DevTools(chrome.stdio[3], chrome.stdio[4]);
    return await run((page) => open(devtools, page));
  } finally {
    chrome.kill();
    await gone;
    await removed(dir);
  }
}

// removed removes a folder into which processes of a browser that was killed still write.
async function removed(dir) {
  for (let tries = 0; tries < 100; tries++) {
    try {
      return rmSync(dir, { recursive: true, force: true });
    } catch {
      await wait(200);
    }
  }
}

// DevTools speaks the protocol of that name over two pipes; a message ends with a zero byte.
class DevTools {
  calls = new Map();
  last = 0;
  heard = () => {};

  constructor(to, from) {
    this.to = to;
    let rest = "";
    from.setEncoding("utf8").on("data", (text) => {
      const parts = (rest + text).split("\0");
      rest = parts.pop();
      parts.forEach((p) => this.take(JSON.parse(p)));
    });
  }

  take(message) {
    if (!message.id) return this.heard(message);
    this.calls.get(message.id)(message.result ?? message.error);
    this.calls.delete(message.id);
  }

  call(sessionId, method, params = {}) {
    const id = ++this.last;
    this.to.write(JSON.stringify({ id, method, params, sessionId }) + "\0");
    return new Promise((done) => this.calls.set(id, done));
  }
}

async function open(devtools, { url, ready, evaluate = "undefined", width, dark, whole, plain, inspect }) {
  const page = { url, ready: false, requests: [], complaints: [] };
  const listen = async (session) => {
    for (const domain of ["Network", "Log", "Runtime"]) await devtools.call(session, domain + ".enable");
  };
  devtools.heard = ({ method, params, sessionId }) => {
    switch (method) {
      case "Network.requestWillBeSent":
        page.requests.push(params.request.url);
        break;
      case "Network.loadingFailed":
        if (!params.canceled) page.complaints.push("not loaded: " + params.errorText);
        break;
      case "Log.entryAdded":
        if (params.entry.level !== "info") page.complaints.push(`${params.entry.level}: ${params.entry.text} ${params.entry.url ?? ""}`);
        break;
      case "Runtime.exceptionThrown":
        page.complaints.push("thrown: " + (params.exceptionDetails.exception?.description ?? params.exceptionDetails.text));
        break;
      case "Target.attachedToTarget": // a worker of the page, or a frame
        (params.targetInfo.type.includes("worker") ? listen(params.sessionId) : Promise.resolve())
          .then(() => devtools.call(params.sessionId, "Runtime.runIfWaitingForDebugger"));
        break;
    }
  };
  const { targetId } = await devtools.call(undefined, "Target.createTarget", { url: "about:blank" });
  const { sessionId } = await devtools.call(undefined, "Target.attachToTarget", { targetId, flatten: true });
  await listen(sessionId);
  await devtools.call(sessionId, "Target.setAutoAttach", { autoAttach: true, waitForDebuggerOnStart: true, flatten: true });
  if (width) await devtools.call(sessionId, "Emulation.setDeviceMetricsOverride", { width, height: 800, deviceScaleFactor: 1, mobile: false });
  if (dark) await devtools.call(sessionId, "Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "dark" }] });
  if (plain) await devtools.call(sessionId, "Emulation.setScriptExecutionDisabled", { value: true });
  await devtools.call(sessionId, "Page.navigate", { url });
  for (let tries = 0; tries < 240 && !page.ready; tries++) {
    await wait(250);
    page.ready = (await devtools.call(sessionId, "Runtime.evaluate", { expression: ready })).result?.value === true;
  }
  page.value = (await devtools.call(sessionId, "Runtime.evaluate", { expression: evaluate, awaitPromise: true, returnByValue: true })).result?.value;
  page.seen = await inspect?.(devtools, sessionId);
  const shot = { format: "png" };
  if (whole) {
    const { cssContentSize } = await devtools.call(sessionId, "Page.getLayoutMetrics");
    Object.assign(shot, { captureBeyondViewport: true, clip: { ...cssContentSize, scale: 1 } });
  }
  page.picture = Buffer.from((await devtools.call(sessionId, "Page.captureScreenshot", shot)).data, "base64");
  await devtools.call(undefined, "Target.closeTarget", { targetId });
  return page;
}
