// Package wire holds the bodies that all parts of the node's HTTP surface share: problems, probes
// and the names of stream events. The packages below it hold the bodies and the calls of wallet,
// ledger and node, so that a client links no engine. Those of the other services are in
// httpapi/<service>, with the handlers. All follow the same rules.
//
// The structs are plain data. Hashed or signed bytes are raw JSON values, so that no marshaller
// rewrites them. Hashes and times are strings, because a reader that only forwards them must not
// change them. The tags doc, enum and format are for people and for the JSON Schema that package
// openapi generates.
//
// # Invariants
//
//  1. The name of a member here is its name on the wire. It is never renamed.
//  2. A value is a jsontext.Value if its bytes are hashed or signed.
//  3. Absent members are omitted, never null.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package wire
