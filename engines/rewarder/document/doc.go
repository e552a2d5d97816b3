// Package document declares the documents of the rewarder. The engine stores and returns them, the
// routes send them, and a client reads them, so the package links neither the store nor HTTP.
//
// # Invariants
//
//  1. The JSON of a document is a public form: a member is added, never renamed.
//  2. Rows of the engine hold documents as CBOR. A member is added with omitempty, never renamed.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package document
