// Package cli holds what the verbs of ronbox share: one run of the command with its streams and flags, the way to the
// node or to its database file, results for people and as JSON, failures with their exit codes, progress.
//
// It knows no service. The package of a service's verbs adds a Hint, which explains that service's refusals.
//
// # Invariants
//
//  1. failure.go holds the only table of exit codes.
//  2. With --json, stdout holds nothing but JSON.
//  3. An interrupted verb leaves no partial file, and none is written over.
//  4. Ctrl-C ends a verb, also one that waits at a question or for its stdin; a second one ends it whatever it does.
//  5. A flag that is given nothing is refused: it would ask for less than meant.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package cli
