// Package wire holds the bodies that every part of the node's HTTP surface
// shares: problems, probes and the names of stream events. The bodies of a
// service are in its own package, httpapi/<service>; what follows is true of
// all of them.
//
// The structs are plain data. Hashed or signed bytes travel as raw JSON
// values, so that no marshaller ever rewrites what a signature covers; hashes
// and times stay strings, because a reader that only passes them on must not
// be able to change them. The tags doc, enum and format are for people and for
// the JSON Schema of each body, which package openapi makes of them.
//
// # Invariants
//
//  1. A member name here is the member name on the wire; it is never renamed.
//  2. A value whose bytes are hashed or signed is a jsontext.Value.
//  3. Members that may be absent are omitted, never null.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package wire
