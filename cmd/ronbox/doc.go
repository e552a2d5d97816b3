// Command ronbox is the appliance and its administration in one binary: serve
// runs the node, the other verbs make, ask, change and check one.
//
// A verb is online or offline. An online verb finds the node by --data-dir (its
// admin socket) or by --url and --token-file; an offline verb reads files that
// no node holds, and says so with exit code 75 when one does. Results go to
// stdout, progress and messages to stderr; with --json the result is one
// document (one per line for streams) and a failure is a problem object.
//
// Each package below holds the verbs of one subject, and cli what they share; root.go lists them.
//
// # Invariants
//
//  1. A secret is never an argument and never printed, but for the token that
//     token mint or attenuate is asked for.
//  2. What cannot be taken back wants --yes, or a person at a terminal who types
//     what it is about.
//  3. Every verb explains itself, with examples that are taken as they stand, and
//     is seen at work in a transcript, for people and with --json.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package main
