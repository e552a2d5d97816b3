// Package document declares what callers of the registry get: its documents, and the errors that
// are returned instead of one. The engine returns them, the routes send them, and a client reads
// them, so the package links neither the store nor HTTP.
//
// # Invariants
//
//  1. A document has no pointer into the state of the engine. The caller may keep it.
//  2. The JSON of a document is a public form: a member is added, never renamed.
//  3. An error says by its type or sentinel whether the same call may succeed later.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package document
