// Package engines holds the value types that several engines share: account and asset names,
// amounts, actors and their grants.
//
// # Invariants
//
//  1. It holds plain values: no clock, no I/O, no state.
//  2. It imports no other package of ronbox.
//  3. An Amount has one spelling, and sums never wrap.
//  4. Narrowing a Grant never widens it. A Grant is immutable after it is handed out.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package engines
