// Package refusal holds the words of refusals: one row for each kind, from which the answer of the
// node, the advice of the command line, `ronbox explain` and the reference of the codes are made. A
// service has a table of its own, in httpapi/wire/<service>; Shared has the rows that all services
// have in common.
//
// # Invariants
//
//  1. No other package of ronbox is linked into a program that imports it.
//  2. A table has at most one row of a reason and a cause. Each row says what the refusal means and
//     what to do next.
//  3. Reason, Cause, Status, Retry and Exit of a row are never edited, because programs read
//     them.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package refusal
