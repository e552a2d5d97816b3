// Package canon writes and reads documents that are hashed: JSON objects of texts, lists of texts and objects, in one spelling.
//
// # Invariants
//
//  1. A document has one spelling: UTF-8, members sorted by bytes, no white space, every number a decimal string without leading zeros. Its bytes
//     never depend on a library.
//  2. A reader takes each member once and refuses what it has not taken. Of several faults one is told, as a FieldError that names the member.
//
// # Tasks and queues
//
// none: every function returns when its work is done.
//
// # Lock order
//
// none: nothing is shared.
package canon
