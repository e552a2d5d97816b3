// Package rewarder serves the HTTP routes of the rewarder: policies, uploads of usage, runs, and
// their results: allocations, proofs and the state of payment. New builds the routes over the
// engine. Client calls them.
//
// # Invariants
//
//  1. The tenant comes from the token, never from a body. Socket peers and tokens without a tenant
//     act for the tenant default.
//  2. A repeated write gets the answer of the first one. A write that differs is refused, and the
//     refusal names both ids.
//  3. Every number that is hashed or paid is a decimal string.
//  4. Member names of bodies are never renamed.
//  5. For a caller without rewarder.admin, the uploads of other principals do not exist.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package rewarder
