// Package registry holds the refusals of the registry and the wire form of HEAD. The other bodies of
// the registry are in httpapi/registry, because most of them are types of its engine, which a client
// should not link.
//
// # Invariants
//
//  1. The members of Head are those of the engine's Head, in the same order.
//  2. A member name of a body is never renamed.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package registry
