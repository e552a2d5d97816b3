// Command ronbox is the appliance and its administration in one binary: serve
// runs the node, the other verbs make, ask, change and check one.
//
// A verb is online or offline. An online verb finds the node by --data-dir (its
// admin socket) or by --url and --token-file; an offline verb reads files that
// no node holds, and says so with exit code 75 when one does. Results go to
// stdout, progress and messages to stderr; with --json the result is one
// document (one per line for streams) and a failure is a problem object.
//
// # Invariants
//
//  1. exit.go holds the only table of exit codes.
//  2. With --json, stdout holds nothing but JSON.
//  3. A secret is never an argument and never printed, but for the token that
//     token mint or attenuate is asked for.
//  4. A private key is read by sign, approve, genesis, init and apply only, and
//     never leaves the process.
//  5. An interrupted verb leaves no partial file, and none is written over.
//  6. What cannot be taken back wants --yes, or a person at a terminal who types
//     what it is about.
//  7. Every verb explains itself, with examples that are taken as they stand, and
//     is seen at work in a transcript, for people and with --json.
//  8. A configuration with a fault keeps nobody from a node that runs.
//  9. Ctrl-C ends a verb, also one that waits at a question or for its stdin; a
//     second one ends it whatever it does.
//  10. A flag that is given nothing is refused: it would ask for less than meant.
//  11. What changes money tells its key before it is sent, and is sent again under no
//     other while an answer to it is missing: whatever is lost, it is done once.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package main
