// Checks the proof that an item is in a version of the registry, or is not: that the version is in the log
// under the checkpoint, that its entry names the payload, and that the payload's root covers the item, or the two
// neighbours of its place. `ronbox registry verify --proof` checks the signatures of the checkpoint too.

import { sum } from "./blake3.js";
import { fromBase64, joined, need, show } from "./verdict.js";

const utf8 = (text) => new TextEncoder().encode(text);
const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
const sha256 = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-256", joined(...parts)));

// canonical returns the text of a value that is hashed: members in order, no spaces.
function canonical(value) {
  if (Array.isArray(value)) return "[" + value.map(canonical).join() + "]";
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return "{" + Object.keys(value).sort().map((k) => JSON.stringify(k) + ":" + canonical(value[k])).join() + "}";
}

// rootOf returns the root to which a path leads from the leaf index of size.
async function rootOf(text, index, size, path) {
  need("a place beyond its tree", Number.isSafeInteger(index) && index >= 0 && index < size);
  const rest = path.map(fromBase64);
  need("a path has a digest of another length", rest.every((one) => one.length === 32));
  let digest = await sha256([0], utf8(text));
  for (let last = size - 1; last > 0; index = Math.floor(index / 2), last = Math.floor(last / 2)) {
    if (index === last && index % 2 === 0) continue;
    const beside = rest.shift();
    need("a path is too short", beside);
    digest = await (index % 2 === 1 ? sha256([1], beside, digest) : sha256([1], digest, beside));
  }
  need("a path is too long", rest.length === 0);
  return hex(digest);
}

// inSet checks that a descriptor has its place in the set of a payload.
async function inSet(what, at, payload) {
  const root = await rootOf(canonical(at.item), at.index, payload.items_count, at.hashes);
  need(`${what} does not lead to the root of the items`, "sha256:" + root === payload.items_root);
}

// absent checks that nothing lies between the neighbours of an id.
async function absent(id, { left, right }, payload) {
  need("the left neighbour does not lie left", !left || left.item.id < id);
  need("the right neighbour does not lie right", !right || right.item.id > id);
  if (left) await inSet("the left neighbour", left, payload);
  if (right) await inSet("the right neighbour", right, payload);
  const next = left ? left.index + 1 : 0;
  need("the neighbours do not follow one another", next === (right ? right.index : payload.items_count));
  need("the empty set has another root", left || right || payload.items_root === "sha256:" + hex(await sha256()));
}

// check rejects unless the proof shows the descriptor text under an id, or, without text, that there is none.
// It returns a sentence about what holds.
export async function check(proof, id, text) {
  need("the proof has another form", proof.format === "ronbox-registry-proof-v1");
  const [, size, root] = proof.checkpoint.split("\n");
  const entry = JSON.parse(proof.entry), payload = JSON.parse(proof.payload), item = proof.item;
  const place = proof.inclusion.index;
  need("the proof is of another version", [place + 1, entry.version, payload.version].every((v) => v === proof.version));
  need("the proof is of another id", item.id === id);
  const led = await rootOf(proof.entry, place, Number(size), proof.inclusion.hashes);
  need("the entry does not lead to the root of the checkpoint", led === hex(fromBase64(root)));
  need("the entry names another payload", entry.payload_b3 === "b3:" + hex(sum(utf8(proof.payload))));
  if (text) {
    need("the proof is one of absence", item.item);
    need("the proof is of another descriptor", item.item.item.id === id && canonical(item.item.item) === canonical(JSON.parse(text)));
    await inSet("the descriptor", item.item, payload);
  } else {
    need("the proof is one of presence", !item.item);
    await absent(id, item, payload);
  }
  return `version ${proof.version} ${text ? "has this item" : "has no such item"}, and is in the log of ${size} versions with root ${root}`;
}

show(({ proof, id, text }) => check(JSON.parse(proof), id, text));
