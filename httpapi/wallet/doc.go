// Package wallet serves the wallet over HTTP: payments, alone or in batches, and balances. New
// returns its routes, with those of package ledger. The bodies are in httpapi/wire/wallet.
//
// # Invariants
//
//  1. A write has an Idempotency-Key. A repeated write gets the bytes of the first answer, and a
//     header that marks it.
//  2. A refusal states whether anything was done. If the outcome is not known, it explains how to
//     find out, and that the same request is safe.
//  3. The nonce of an account is shown only to callers that may debit the account.
//  4. The refusal of a body names one member at fault; malformed CBOR names the offset. A batch is
//     not decoded beyond the operations that it may hold. No body is kept while its request waits.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package wallet
