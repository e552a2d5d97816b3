// Package page reads the pages of a database file of bbolt with plain reads, before bbolt maps
// them.
//
// # Invariants
//
//  1. Each number of a page is checked before it is used: no file makes a reader leave its bytes,
//     loop or reserve more than TreeMax bytes for a page.
//  2. The walk detects damage of the structure: each page is used or free, once, and keys are in
//     order. It does not detect changed values.
//  3. Preflight chooses the meta page that bbolt chooses.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None. The caller holds the lock of the file.
package page
