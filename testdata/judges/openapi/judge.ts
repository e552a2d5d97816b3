// Pays a node with a client whose types openapi-typescript made from the node's document. It compiles only if the document gives each body and parameter its type.
import createClient from "openapi-fetch";
import type { components, operations, paths } from "./node.js";

const [, , baseUrl = "", token = ""] = process.argv;
const node = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
let bad = 0;
const holds = (yes: boolean, what: string): void => {
  if (!yes) bad++;
  console.log((yes ? "holds  " : "FAILS  ") + what);
};

type Order = operations["transfer"]["requestBody"]["content"]["application/json"];
const order: Order = { from: "alice", to: "bob", asset: "ron", amount_minor: "1200" };
const pay = (key: string, body: Order) => node.POST("/v1/transfer", { params: { header: { "Idempotency-Key": key } }, body });

const first = await pay("order-7", order), again = await pay("order-7", order);
const receipt: components["schemas"]["Receipt"] | undefined = first.data;
holds(receipt !== undefined && receipt.op === "transfer" && receipt.ledger.seq > 0, `a transfer is paid: ${receipt?.txid}`);
holds(again.data?.txid === receipt?.txid && again.response.headers.get("Idempotent-Replayed") === "true", "its repetition is the same payment");

const balance = await node.GET("/v1/balance", { params: { query: { account: "bob", asset: "ron" } } });
holds(balance.data?.amount_minor === "1200", `bob has ${balance.data?.amount_minor}`);

const refused = await pay("order-8", { ...order, amount_minor: "9".repeat(20) });
const problem: components["schemas"]["Problem"] | undefined = refused.error;
holds(problem?.status === 409 || problem?.status === 403 || problem?.status === 422, `too much is refused: ${problem?.reason}`);

const proof = await node.GET("/v1/tx/{txid}/proof", { params: { path: { txid: receipt?.txid ?? "" } } });
holds(proof.data?.format === "ronbox-ledger-proof-v1", "the payment has a proof");

// Each of these would be refused by the node, and does not compile.
export const mistakes = (): void => {
  // @ts-expect-error a transfer has no member amount
  void pay("order-9", { ...order, amount: "1" });
  // @ts-expect-error an amount is text
  void pay("order-9", { ...order, amount_minor: 1200 });
  // @ts-expect-error a payment needs an Idempotency-Key
  void node.POST("/v1/transfer", { body: order });
  // @ts-expect-error a balance is that of an account
  void node.GET("/v1/balance", { params: { query: { asset: "ron" } } });
  // @ts-expect-error HEAD is not in the document
  void node.HEAD("/v1/balance", { params: { query: { account: "bob", asset: "ron" } } });
};
process.exit(bad ? 1 : 0);
