// Package wallet is the wallet's part of the HTTP surface: payments, one or many at a time, and what accounts have. New makes it
// from the engine behind Engine, with the routes of package ledger; Client calls both.
//
// # Invariants
//
//  1. A write has an Idempotency-Key; one that is repeated gets the bytes of the first answer, and says so.
//  2. A refusal says whether anything was done. One whose outcome is not known says how to find out, and that the same request
//     is safe.
//  3. The nonce of an account is shown to callers who may debit it only.
//  4. Of a body that is refused one member at fault is named, in JSON as in CBOR. A batch is never decoded beyond the operations
//     that it may hold, and nothing is kept of a body while its request waits.
//  5. A member name of a body is never renamed.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package wallet
