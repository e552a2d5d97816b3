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
//  5. A stream of payments reads the journal by seq, and the bus of the ledger only wakes it. A
//     reader that resumes by its last id misses none. A slow one has the memory of a chunk, holds
//     no view, and delays no commit. A reader that is ahead of the ledger is refused.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package wallet
