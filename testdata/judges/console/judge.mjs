// Opens every page of a node's console in a headless Chromium. The arguments are the node's URL, two URLs that enter, and a folder for pictures or "". It prints what
// it saw, and ends with 1 if something does not hold.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { browse } from "../edge/browser.mjs";

const [node, enter, again, pictures] = process.argv.slice(2);
let bad = 0;
const holds = (yes, what) => {
  if (!yes) bad++;
  console.log((yes ? "holds  " : "FAILS  ") + what);
};
const loaded = `document.readyState === "complete" && !!document.querySelector("main h1")`;

// pay sends the form of a payment twice, as a double click does, and returns the balance after it.
const pay = `(async () => {
  const form = document.querySelector("form.pay"), data = new FormData(form);
  data.set("to", "carol"); data.set("amount", "1200");
  const send = () => fetch(form.action, { method: "POST", body: new URLSearchParams(data) });
  const [one, two] = await Promise.all([send(), send()]);
  const page = await (await fetch("/console/wallet?account=carol")).text();
  return { at: [one.url, two.url], paid: page.includes("<p class=\\"figure\\">1\\u202f200 ron") };
})()`;

const pages = ["", "registry", "registry?item=region/none", "wallet?account=alice", "rewards", "edge", "index", "operations"];
const first = [enter, `${node}/console/wallet?account=alice`];
const [entered, paid] = await browse(
  [...first, ...pages.map((p) => `${node}/console/${p}`)],
  loaded + ` && location.pathname !== "/console/enter"`,
  `location.search.includes("alice") && document.querySelector("form.pay") && !window.done ? (window.done = true, ${pay}) : document.documentElement.scrollWidth <= innerWidth`,
).then((all) => {
  all.forEach((page) => {
    const path = page.url.replace(/#.*/, "#…");
    holds(page.ready, `${path}: shown`);
    holds(page.complaints.length === 0, `${path}: no complaint ${page.complaints.join("; ")}`);
    holds(page.requests.every((r) => r.startsWith(node) || r.startsWith("data:")), `${path}: asks this node alone`);
    if (pictures) writeFileSync(join(pictures, `console${new URL(page.url).pathname.replaceAll("/", "-")}.png`), page.picture);
  });
  return all;
});
holds(entered.ready, "a code in the address enters by itself");
const value = paid.value ?? {};
holds(value.paid === true && value.at[0] === value.at[1], `a form that is sent twice pays once: ${JSON.stringify(value)}`);

const receipt = value.at?.[0] ?? `${node}/console/wallet`;
const verdict = `document.querySelector("#verdict .light")?.className`;
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
  return { verdict: ${verdict}, refused, bits: bytes.length * 8 };
})()`;
const [, seen] = await browse([again, receipt], loaded + ` && location.pathname !== "/console/enter"`, flipped);
holds(seen.value?.verdict === "light good", `the proof of the receipt is verified in the page: ${JSON.stringify(seen.value)} ${seen.complaints.join("; ")}`);
holds(seen.value?.refused === seen.value?.bits && seen.value?.bits > 0, "each flipped bit of the record is refused");
process.exit(bad ? 1 : 0);
