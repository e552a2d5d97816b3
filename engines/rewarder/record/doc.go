// Package record holds the documents of the rewarder: what is hashed, signed, exported and recomputed offline. Each has one writer, whose bytes
// never depend on a library, and one strict reader.
//
// # Invariants
//
//  1. A document has one spelling: UTF-8, members sorted by bytes, no white space, every number a decimal string without leading zeros. Its id is
//     the BLAKE3 of these bytes, so that b3sum checks it.
//  2. What a reader takes, its writer gives back to the byte; a policy alone may come in any spelling, and has the id of the one it is
//     written in.
//  3. A refusal is a FieldError, which names the member and the reason.
//  4. A digest with a purpose begins with an ASCII line that names it.
//  5. Rows ascend by actor, content and metric, in byte order; no two are of the same three.
//
// # Tasks and queues
//
// none: every function returns when its work is done.
//
// # Lock order
//
// none: nothing is shared.
package record
