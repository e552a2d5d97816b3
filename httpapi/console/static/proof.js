// Checks the proof of a receipt: that its record is in a batch, the batch in the log of
// the ledger, and that the receipt says what the record says. `ronbox ledger verify-proof` checks every
// kind of record and every member.

import { derived, sum } from "./blake3.js";
import { fromBase64, joined, need, show } from "./verdict.js";

const HEADER = 100; // bytes of a batch header that its root covers
const OPS = { 1: "open", 2: "asset", 3: "flags", 4: "once", 5: "issue", 6: "transfer", 7: "burn", 8: "hold", 9: "capture", 10: "release", 11: "expire", 12: "batch",
  13: "scale", 14: "close" };

const hex = (bytes) => "b3:" + Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
const fromHex = (text) => Uint8Array.from(text.slice(3).match(/../g), (two) => parseInt(two, 16));
const view = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
const u64 = (bytes, at) => view(bytes).getBigUint64(at, true);
const utf8 = (text) => new TextEncoder().encode(text);

const leaf = (bytes) => sum(joined([0], bytes));
const node = (left, right) => sum(joined([1], left, right));

// climb returns the root to which a path leads from the leaf index of size.
function climb(digest, index, size, path) {
  need("a place beyond its tree", index < size);
  const rest = path.map(fromHex);
  for (let last = size - 1n; last > 0n; index /= 2n, last /= 2n) {
    if (index === last && index % 2n === 0n) continue;
    const beside = rest.shift();
    need("a path is too short", beside);
    digest = index % 2n === 1n ? node(beside, digest) : node(digest, beside);
  }
  need("a path is too long", rest.length === 0);
  return digest;
}

const rootOf = (header) => derived("ronbox ledger batch v1", header.subarray(0, HEADER));

// inLog checks that a batch is in the log.
function inLog(what, header, path, head) {
  const at = u64(header, 4) - 1n;
  const got = climb(leaf(rootOf(header)), at, BigInt(head.batches), path);
  need(`${what}: the batch does not lead to the root of the log`, hex(got) === head.log_root);
}

// included checks a record, and returns its bytes.
function included(what, part, head) {
  const record = fromBase64(part.record), header = fromBase64(part.header);
  const index = BigInt(part.index), count = u64(header, 20);
  need(`${what}: the record has another place`, u64(record, 8) - u64(header, 12) === index && u64(record, 16) === u64(header, 4));
  const got = climb(leaf(record), index, count, part.path);
  need(`${what}: the record does not lead to the root of its batch`, hex(got) === hex(header.subarray(36, 68)));
  inLog(what, header, part.log_path, head);
  return record;
}

// nameIn returns the name that a record gives to an account or an asset: its last part.
function nameIn(record) {
  const parts = view(record).getUint16(4, true);
  const sizes = [16, 49, 32, 8, 8];
  let at = 80;
  sizes.forEach((size, bit) => { if (parts & (1 << bit)) at += size; });
  need("a record of a name has results", !(parts & (1 << 5)));
  need("a record of a name has no name", parts & (1 << 6));
  const length = view(record).getUint16(at, true);
  return new TextDecoder().decode(record.subarray(at + 2, at + 2 + length));
}

function amountOf(record) {
  return (u64(record, 48) << 64n | u64(record, 40)).toString();
}

// check throws a Fault unless the proof shows the receipt.
export function check(proof, receipt) {
  need("the proof has another form", proof.format === (proof.past ? "ronbox-ledger-proof-v2" : "ronbox-ledger-proof-v1"));
  const head = proof.head, last = fromBase64(proof.last.header);
  need("the head is not that of the last batch", hex(rootOf(last)) === head.last_root && u64(last, 4) === BigInt(head.batches));
  inLog("head", last, proof.last.log_path, head);
  const record = included("record", proof.tx, head);
  const named = namesOf(record, proof, head);
  need("the receipt is of another record", u64(record, 8) === BigInt(receipt.ledger.seq) && txid(record) === receipt.txid);
  need("the receipt names another batch", hex(rootOf(fromBase64(proof.tx.header))) === receipt.ledger.root);
  need("the receipt has another operation", OPS[record[1]] === receipt.op);
  need("the receipt has another amount", amountOf(record) === (receipt.amount_minor ?? String(receipt.decimals ?? 0)));
  need("the receipt has another nonce", u64(record, 72) === BigInt(receipt.nonce ?? 0));
  need("the receipt has another time", Number(u64(record, 24) / 1000000n) === Date.parse(receipt.ts));
  need("the receipt has another asset", named.asset === receipt.asset);
  need("the receipt has another payer", (receipt.op === "issue" ? undefined : named.from) === receipt.from);
  need("the receipt has another payee", (receipt.op === "burn" ? undefined : named.to) === receipt.to);
}

// pastOf returns the statement of the closed periods whose names a proof shows.
function pastOf(record, proof, head) {
  if (!proof.past) return { accounts: 0, assets: 0 };
  const close = included("the closing", proof.past.close, head), text = proof.past.statement;
  need("the record of the closing closes nothing", OPS[close[1]] === "close" && view(close).getUint16(4, true) === 2);
  need("the statement is another one", hex(close.subarray(97, 129)) === hex(sum(utf8(text)))); // the fingerprint
  const statement = JSON.parse(text);
  need("the record is in a closed period", u64(record, 8) > BigInt(statement.to_seq));
  return statement;
}

// closedName returns the name of a ref that the log of names of a statement has.
function closedName(member, ref, part, statement) {
  const kind = member === "asset" ? "asset" : "account";
  need(`the name of the ${member} is missing`, part);
  need(`the ${member} is another one`, part.kind === kind && BigInt(part.ref) === ref);
  const bytes = joined([kind === "asset" ? 0x73 : 0x61], new Uint8Array(8), utf8(part.name));
  view(bytes).setBigUint64(1, ref);
  const got = climb(leaf(sum(bytes)), BigInt(part.index), BigInt(statement.accounts) + BigInt(statement.assets), part.path);
  need(`the ${member} does not lead to the root of the log of names`, hex(got) === statement.names_root);
  return part.name;
}

// namesOf returns the names of the accounts and the asset of a record, from the records that gave
// them, or from the log of names of closed periods.
function namesOf(record, proof, head) {
  const rest = [...proof.names], closed = [...proof.past?.names ?? []], named = {};
  const statement = pastOf(record, proof, head);
  const refs = { from: u64(record, 56), to: u64(record, 64), asset: BigInt(view(record).getUint32(32, true)) };
  for (const [member, ref] of Object.entries(refs)) {
    if (ref === 0n) continue;
    if (ref <= BigInt(member === "asset" ? statement.assets : statement.accounts)) {
      named[member] = closedName(member, ref, closed.shift(), statement);
      continue;
    }
    const part = rest.shift();
    need(`the record of the ${member} is missing`, part);
    const open = included(`the ${member}`, part, head);
    const of = member === "asset" ? BigInt(view(open).getUint32(32, true)) : u64(open, 56);
    need(`the ${member} is another one`, of === ref && OPS[open[1]] === (member === "asset" ? "asset" : "open"));
    named[member] = nameIn(open);
  }
  need("there are more names than the record has", rest.length + closed.length === 0);
  return named;
}

// txid returns the id of a record: its time in ms, its number and its random bits in base 32.
function txid(record) {
  const ms = u64(record, 24) / 1000000n;
  let n = ms << 80n | u64(record, 8) << 16n | BigInt(view(record).getUint16(6, true));
  let text = "";
  for (let i = 0; i < 26; i++, n >>= 5n) text = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[Number(n & 31n)] + text;
  return "tx_" + text;
}

show(({ proof, receipt }) => {
  check(JSON.parse(proof), JSON.parse(receipt));
  return "the ledger's log holds this record";
});
