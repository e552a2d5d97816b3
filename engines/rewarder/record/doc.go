// Package record defines the documents of the rewarder that are hashed, signed, exported and
// recomputed offline. Each document has one writer, whose bytes do not depend on a library, and one
// strict reader.
//
// # Invariants
//
//  1. A document has one spelling: UTF-8, members sorted by bytes, no white space, every number a
//     decimal string without leading zeros. Its id is the BLAKE3 of these bytes, so that b3sum
//     checks it.
//  2. A document that a reader accepts is reproduced by its writer byte for byte. Only a policy may
//     come in any spelling; its id is that of its canonical spelling.
//  3. An invalid document is refused with a FieldError, which names the member and the reason.
//  4. The input of a digest with a purpose begins with an ASCII line that names the purpose.
//  5. Rows ascend by actor, content and metric, in byte order, without duplicates.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package record
