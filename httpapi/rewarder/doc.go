// Package rewarder is the rewarder's part of the HTTP surface: policies, uploads of usage, runs, and what came of them: allocations, proofs and
// the state of payment. New makes it from the engine; Client calls it.
//
// # Invariants
//
//  1. The tenant is that of the token, never a member of a body; peers of the socket and tokens without one act for the tenant default.
//  2. A write that is repeated gets the answer of the first; one that differs is refused and both ids are named.
//  3. Every number that is hashed or paid is a decimal string.
//  4. A member name of a body is never renamed.
//  5. An upload of another principal does not exist for a caller without rewarder.admin.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package rewarder
