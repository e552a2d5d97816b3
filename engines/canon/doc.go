// Package canon writes and reads canonical documents: JSON objects of strings, lists of strings and
// nested objects. The bytes of a document are hashed.
//
// # Invariants
//
//  1. A document has one spelling: UTF-8, members sorted by bytes, no white space, every number a
//     decimal string without leading zeros. Its bytes do not depend on a library.
//  2. A reader takes each member once and refuses members that were not taken. A fault is a
//     FieldError that names the member. End returns the first fault, and Faults returns all of
//     them.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package canon
