// Package openapi builds the OpenAPI 3.1 document of an HTTP surface from a
// table of its routes, and the JSON Schema of every body from the Go type that
// is sent.
//
// A struct is an object whose members are its JSON names: required unless they
// may be left out (omitzero, omitempty), and no others. Three tags say what a
// Go type cannot: doc describes a member, enum lists its values
// ("pending|committed"), format names a spelling that formats.go knows ("b3",
// or "b3?" where it may be empty).
//
// # Invariants
//
//  1. The same routes give the same bytes.
//  2. A document is complete or there is none: a path parameter that nobody
//     described, two types of one name, two operations of one id are errors.
//  3. A built Document never changes; it is safe for concurrent use.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package openapi
