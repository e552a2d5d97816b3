// Opens every page of a node's console in a headless Chromium. The arguments are the node's URL, the program ronbox, the node's data directory, and a folder for
// pictures or "". It prints what it saw, and ends with 1 if something does not hold.
import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
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
  data.set("to", "carol"); data.set("amount", "1200"); data.set("new", "1");
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

// flippedItem counts the changes of one bit that the page of an item refuses: in the log entry, in places of the payload, in the descriptors and paths of the proof.
const flippedItem = `(async () => {
  const { check } = await import(document.querySelector('script[src$="item.js"]').src);
  const { dataset } = document.getElementById("verdict");
  const proof = JSON.parse(dataset.proof);
  const changed = (one) => check(one, dataset.id, dataset.text).then(() => 0, () => 1);
  let refused = 0, bits = 0;
  const flip = async (text, put) => {
    for (let at = 0; at < text.length; at += Math.ceil(text.length / 200), bits++) {
      const one = structuredClone(proof);
      put(one, text.slice(0, at) + String.fromCharCode(text.charCodeAt(at) ^ 1 << bits % 7) + text.slice(at + 1));
      refused += await changed(one);
    }
  };
  await flip(proof.entry, (one, text) => one.entry = text);
  await flip(proof.payload, (one, text) => one.payload = text);
  const path = async (hashes, of) => {
    for (let i = 0; i < hashes.length; i++) await flip(hashes[i].slice(0, 42), (one, text) => of(one)[i] = text + hashes[i].slice(42));
  };
  await path(proof.inclusion.hashes, (one) => one.inclusion.hashes);
  for (const part of ["item", "left", "right"]) {
    const at = proof.item[part];
    if (!at) continue;
    await flip(at.item.id, (one, text) => one.item[part].item.id = text);
    await path(at.hashes, (one) => one.item[part].hashes);
  }
  const other = await check(proof, dataset.id, dataset.text ? "" : "{}").then(() => false, () => true);
  const verdict = document.querySelector("#verdict .light");
  return { verdict: verdict?.className, says: verdict?.textContent, refused, bits, other };
})()`;

// measured says of a page without script whether it is wider than its window; axe is a script.
const measured = `({ wide: document.documentElement.scrollWidth > innerWidth, violations: [] })`;

// audited has axe look at the page, and says whether it is wider than its window.
const audited = `(async () => {
  ${axe};
  const { violations } = await window.axe.run(document);
  return {
    wide: document.documentElement.scrollWidth > innerWidth,
    violations: violations.map((v) => v.id + " " + v.nodes.map((n) => n.target).join(" ")),
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
  data.set("to", "dave"); data.set("amount", "7"); data.set("new", "1");
  await fetch("/console/wallet/pay", { method: "POST", body: new URLSearchParams(data) });
  for (let tries = 0; tries < 240 && records() === before; tries++) await wait(250);
  return { live: records() !== before, open: details.isConnected && details.open, focus: document.activeElement === summary };
})()`;

// operated changes the log level by its form, and asks to revoke a token without doing so.
const operated = `(async () => {
  const send = async (form, level) => {
    const data = new FormData(form);
    if (level) data.set("level", level);
    return (await fetch(form.action, { method: "POST", body: new URLSearchParams(data) })).text();
  };
  const level = await send(document.querySelector('form[action$="/level"]'), "debug");
  const sure = await send(document.querySelector('form[action$="/revoke"]'));
  const after = await (await fetch("/console/operations")).text();
  return { level: level.includes("<option selected>debug"), sure: sure.includes("cannot be undone"), kept: !after.includes(">revoked<") };
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

const pages = ["", "registry?item=service/codebuild@eu-west-1", "registry?item=region/none", "registry?from=1&to=2", "wallet?account=alice", "rewards?epoch=2008&actor=airport/ATL", "edge",
  "index?key=name:docs.example", "operations", "cluster", "fleet", "edge/site?name=name:site.example", "edge/pack?id=stamen_toner_z3", "edge/pack?id=none", "manual",
  ...readdirSync("cmd/ronbox/manual").filter((f) => f.endsWith(".md") && f !== "README.md").map((f) => "manual/" + f.slice(0, -3))];
const looks = [{ name: "plain", width: 1280, plain: true }, { name: "light", width: 1280 }, { name: "dark", width: 1280, dark: true }, { name: "360", width: 360 }];

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
      const { value, picture } = await visit(`${node}/console/${path}`, how.plain ? measured : audited, { ...how, whole: true });
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
  for (const [id, says] of [["service/codebuild@eu-west-1", "has this item"], ["region/none", "has no such item"]]) {
    const { value: item = {} } = await visit(`${node}/console/registry?item=${id}`, flippedItem);
    holds(item.verdict === "light good" && item.says.includes(says), `the proof of ${id} is verified in the page: ${item.says}`);
    holds(item.refused === item.bits && item.bits > 0 && item.other, `each of ${item.bits} flipped bits of its proof is refused: ${item.refused}`);
  }
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
  const { value: acted = {} } = await visit(`${node}/console/operations`, operated);
  holds(acted.level && acted.sure && acted.kept, `the forms of operations change the log level, and ask again before a revocation: ${JSON.stringify(acted)}`);
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
