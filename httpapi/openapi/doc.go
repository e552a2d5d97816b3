// Package openapi builds the OpenAPI 3.1 document of an HTTP surface from a
// table of its routes, and the JSON Schema of every body from the Go type that
// is sent.
//
// A struct is an object whose members are its JSON names: required unless they
// may be left out (omitzero, omitempty). What a request holds has no others; an
// answer may grow. Tags say what a Go type cannot: doc describes a member, enum
// lists its values ("pending|committed"), format names a spelling that format.go
// knows ("b3", or "b3?" where it may be empty), min and max bound a number, is
// names the type whose bytes a jsontext.Value holds, example gives a value.
// Every JSON body has an example, made of those of its members.
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
