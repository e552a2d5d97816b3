// Package head declares the public form of HEAD of a registry. A program that reads the status of a
// node links it without the records of the registry.
//
// # Invariants
//
//  1. The JSON of [Head] is a public form: a member is added, never renamed.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package head
