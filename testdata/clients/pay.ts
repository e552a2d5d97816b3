// Pays once, whatever happens: node pay.js FILE FROM TO ASSET AMOUNT_MINOR
//
// FILE keeps the request and its key before the first try, and then the receipt.
// After a crash run the same command again. Environment: RONBOX_URL, RONBOX_TOKEN.
import { randomUUID } from "node:crypto";
import * as fs from "node:fs";
import { dirname } from "node:path";
import { setTimeout } from "node:timers/promises";

type Receipt = { txid: string };
type Order = { from: string; to: string; asset: string; amount_minor: string; reference: string };
const [, , file = "", from = "", to = "", asset = "", amount_minor = ""] = process.argv;
const { RONBOX_URL: url = "", RONBOX_TOKEN: token = "" } = process.env;

// keep writes the payment to the file: after a power cut the file has all of it, or what it had.
function keep(payment: { order: Order; receipt?: Receipt }): void {
  fs.writeFileSync(file + ".new", JSON.stringify(payment), { flush: true });
  fs.renameSync(file + ".new", file);
  fs.fsyncSync(fs.openSync(dirname(file), "r"));
}

// send returns the receipt, or the seconds to wait before the next try.
async function send(order: Order): Promise<Receipt | number> {
  let answer: Response, text: string;
  try {
    answer = await fetch(url + "/v1/transfer", {
      method: "POST",
      headers: {
        Authorization: `Bearer ${token}`, "Content-Type": "application/json", "Idempotency-Key": order.reference,
      },
      body: JSON.stringify(order), signal: AbortSignal.timeout(30_000),
    });
    text = await answer.text();
  } catch (lost) {
    console.error("no answer:", lost); // it may be paid or not
    return 1;
  }
  if (answer.ok) return JSON.parse(text);
  let problem = { reason: answer.statusText, retryable: [429, 502, 503, 504].includes(answer.status) };
  if (answer.headers.get("Content-Type") === "application/problem+json") problem = JSON.parse(text);
  console.error(answer.status, problem.reason);
  if (!problem.retryable) process.exit(1);
  return Number(answer.headers.get("Retry-After") ?? 1);
}

// The node knows a key for a day and a reference for ever. Here they are one word.
const order: Order = { from, to, asset, amount_minor, reference: randomUUID() };
let receipt: Receipt | undefined;
if (fs.existsSync(file)) {
  const kept = JSON.parse(fs.readFileSync(file, "utf8"));
  order.reference = kept.order.reference;
  if (JSON.stringify(kept.order) !== JSON.stringify(order)) throw new Error(file + " is of another payment");
  receipt = kept.receipt;
} else keep({ order });
while (!receipt) {
  const got = await send(order);
  if (typeof got === "number") await setTimeout(1_000 * got);
  else keep({ order, receipt: (receipt = got) });
}
console.log(receipt.txid);
