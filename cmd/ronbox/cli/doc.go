// Package cli provides the common parts of the ronbox verbs: the run of a command with its streams
// and flags, access to the node or to its database file, output for people and as JSON, failures
// with exit codes, and progress.
//
// It does not depend on a service. The verbs of a service add a Hint that explains its errors.
//
// # Invariants
//
//  1. failure.go holds the only table of exit codes.
//  2. With --json, stdout holds only JSON.
//  3. An interrupted verb leaves no partial file and replaces none.
//  4. Ctrl-C ends a verb, even if it waits for an answer or for stdin. A second one ends the
//     process.
//  5. A flag with an empty value is refused, because it could silently remove a restriction.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package cli
