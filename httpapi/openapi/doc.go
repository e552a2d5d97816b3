// Package openapi builds the OpenAPI 3.1 document of an HTTP surface from a table of its routes,
// and the JSON Schema of each body from its Go type.
//
// A struct is an object. Its members have their JSON names. A member is required unless it may be
// omitted (omitzero, omitempty). An object in a request has no other members; one in an answer may
// get more. Tags add properties that a Go type cannot express:
//
//   - doc describes a member,
//   - enum lists its values ("pending|committed"),
//   - format names a syntax of format.go ("b3", or "b3?" if it may be empty),
//   - min and max bound a number,
//   - is names the type of the bytes in a jsontext.Value,
//   - example is an example value.
//
// Every JSON body has an example, composed from those of its members.
//
// # Invariants
//
//  1. The same routes produce the same bytes.
//  2. A document is complete: an undescribed path parameter, two paths that differ only in the name
//     of a parameter, two types with one name, an operation without an id in words, and two with
//     one id are errors.
//  3. A Document never changes. It is safe for concurrent use.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package openapi
