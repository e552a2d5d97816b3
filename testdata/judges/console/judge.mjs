// Opens every page of a node's console in a headless Chromium. The arguments are the node's URL, the program ronbox, the node's data directory, and a folder for
// pictures or "". It prints what it saw, and ends with 1 if something does not hold.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { withBrowser } from "./browser.mjs";

const [node, ronbox, data, pictures] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
let bad = 0;
const holds = (yes, what) => {
  if (!yes) bad++;
  console.log((yes ? "holds  " : "FAILS  ") + what);
};
const verb = (...args) => execFileSync(ronbox, ["--data-dir", data, ...args]).toString();
const loaded = `document.readyState === "complete" && !!document.querySelector("main h1") && location.pathname !== "/console/enter"`;

// pay sends the form of a payment twice, as a double click does, and returns the balance after it.
const pay = `(async () => {
  const form = document.querySelector("form.pay"), data = new FormData(form);
  data.set("to", "carol"); data.set("amount", "1200");
  const send = () => fetch(form.action, { method: "POST", body: new URLSearchParams(data) });
  const [one, two] = await Promise.all([send(), send()]);
  const page = await (await fetch("/console/wallet?account=carol")).text();
  return { at: [one.url, two.url], paid: page.includes("<p class=\\"figure\\">1\\u202f200 ron") };
})()`;

// flipped counts the changes of one bit that the page refuses.
const flipped = `(async () => {
  const { check } = await import(document.querySelector('script[src$="proof.js"]').src);
  const { dataset } = document.getElementById("verdict");
  const proof = JSON.parse(dataset.proof), receipt = JSON.parse(dataset.receipt);
  const bytes = Uint8Array.from(atob(proof.tx.record), (c) => c.charCodeAt(0));
  let refused = 0;
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    bytes[bit >> 3] ^= 1 << (bit & 7);
    const changed = { ...proof, tx: { ...proof.tx, record: btoa(String.fromCharCode(...bytes)) } };
    try { check(changed, receipt); } catch { refused++; }
    bytes[bit >> 3] ^= 1 << (bit & 7);
  }
  return { verdict: document.querySelector("#verdict .light")?.className, refused, bits: bytes.length * 8 };
})()`;

// audited has axe look at the page, and says whether it is wider than its window.
const audited = `(async () => {
  ${axe};
  const { violations } = await window.axe.run(document);
  return {
    wide: document.documentElement.scrollWidth > innerWidth,
    violations: violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => v.id + " " + v.nodes.map((n) => n.target).join(" ")),
  };
})()`;

// followed waits until the overview shows a payment that is made meanwhile, with a part of it open and in focus.
const followed = `(async () => {
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const records = () => [...document.querySelectorAll(".figure")].map((f) => f.textContent).find((text) => text.endsWith("records"));
  const details = document.querySelector("details"), summary = details.querySelector("summary"), before = records();
  details.open = true;
  summary.focus();
  const form = new DOMParser().parseFromString(await (await fetch("/console/wallet?account=alice")).text(), "text/html").querySelector("form.pay");
  const data = new FormData(form);
  data.set("to", "dave"); data.set("amount", "7");
  await fetch("/console/wallet/pay", { method: "POST", body: new URLSearchParams(data) });
  for (let tries = 0; tries < 240 && records() === before; tries++) await wait(250);
  return { live: records() !== before, open: details.isConnected && details.open, focus: document.activeElement === summary };
})()`;

// ended waits until the page of a session that was revoked says so.
const ended = `(async () => {
  const page = await (await fetch("/console/wallet")).text();
  return page.includes("no longer accepted");
})()`;

// borrowed tries to run a script of a site in a page of the console.
const borrowed = `new Promise((done) => {
  const script = document.createElement("script");
  script.onload = () => done("ran");
  script.onerror = () => done("refused");
  script.src = "/edge/sites/site.example/run.js";
  document.head.append(script);
})`;

const pages = ["", "registry?item=region/none", "registry?from=1&to=2", "wallet?account=alice", "rewards?epoch=2008&actor=airport/ATL", "edge",
  "index?key=name:docs.example", "operations"];
const looks = [{ name: "light", width: 1280 }, { name: "dark", width: 1280, dark: true }, { name: "360", width: 360 }];

await withBrowser(async (open) => {
  const visit = async (url, evaluate, look = {}) => {
    const page = await open({ url, ready: loaded, evaluate, ...look });
    const at = url.replace(/#.*/, "#…") + (look.name ? ` ${look.name}` : "");
    holds(page.ready, `${at}: shown`);
    holds(page.complaints.length === 0, `${at}: no complaint ${page.complaints.join("; ")}`);
    holds(page.requests.every((r) => r.startsWith(node) || r.startsWith("data:")), `${at}: asks this node alone`);
    return page;
  };
  const look = async (path, name) => {
    for (const how of looks) {
      const { value, picture } = await visit(`${node}/console/${path}`, audited, { ...how, whole: true });
      holds(value?.wide === false, `${path} ${how.name}: as wide as its window`);
      holds(value?.violations.length === 0, `${path} ${how.name}: accessible ${value?.violations.join("; ")}`);
      if (pictures) writeFileSync(join(pictures, `${name}-${how.name}.png`), picture);
    }
  };
  await look("", "enter");
  await visit(verb("console", "--print", "--write").match(/http\S+/)[0]);
  const { value: paid = {} } = await visit(`${node}/console/wallet?account=alice`, pay);
  holds(paid.paid === true && paid.at[0] === paid.at[1], `a form that is sent twice pays once: ${JSON.stringify(paid)}`);
  const { value: seen = {} } = await visit(paid.at[0], flipped);
  holds(seen.verdict === "light good", `the proof of the receipt is verified in the page: ${JSON.stringify(seen)}`);
  holds(seen.refused === seen.bits && seen.bits > 0, "each flipped bit of the record is refused");
  for (const path of [...pages, new URL(paid.at[0]).pathname.slice("/console/".length) + new URL(paid.at[0]).search]) {
    await look(path, path.replace(/\?.*/, "").replaceAll("/", "-") || "overview");
  }
  const site = await open({ url: `${node}/edge/sites/site.example`, ready: `!!document.documentElement?.dataset.tried`,
    evaluate: `({ at: location.pathname, ...JSON.parse(document.documentElement.dataset.tried) })` });
  const { at, style, origin, frame, ...reads } = site.value ?? {};
  holds(at === "/edge/sites/site.example/" && style === "rgb(1, 2, 3)", `a site is shown with its style and its script: ${at} ${style}`);
  holds(origin === "null" && frame === "closed", `a site has an origin of its own: ${origin} ${frame}`);
  holds(Object.keys(reads).length === 8 && Object.values(reads).every((v) => v.startsWith("refused")), `a site reads nothing of the node: ${JSON.stringify(reads)}`);
  const { value: ran } = await open({ url: `${node}/console/wallet`, ready: loaded, evaluate: borrowed });
  holds(ran === "refused", `the console runs no script of a site: ${ran}`);
  const { value: live } = await open({ url: `${node}/console/`, ready: `${loaded} && !!document.querySelector("details")`, evaluate: followed });
  holds(live?.live && live.open && live.focus, `the overview shows a payment as it happens, and keeps what is open and in focus: ${JSON.stringify(live)}`);
});

await withBrowser(async (open) => {
  const token = JSON.parse(verb("token", "mint", "--scope", "wallet.read", "--json"));
  await open({ url: `${node}/console/`, ready: `!!document.querySelector("input[name=token]")`,
    evaluate: `fetch("/console/enter", { method: "POST", body: new URLSearchParams({ token: ${JSON.stringify(token.token)} }) }).then(() => true)` });
  const before = await open({ url: `${node}/console/wallet`, ready: loaded, evaluate: ended });
  verb("token", "revoke", token.tid, "--yes");
  const after = await open({ url: `${node}/console/wallet`, ready: loaded, evaluate: ended });
  holds(before.value === false && after.value === true, "a session ends when its token is revoked");
});
process.exit(bad ? 1 : 0);
