// Command ronbox contains the appliance and its administration in one binary. The verb serve runs
// the node; the other verbs create, query, change and check a node.
//
// A verb is online or offline. An online verb connects to the node with --data-dir (its admin
// socket), or with --url and --token-file. An offline verb reads files that no node has open; it
// exits with code 75 if a node has them open. Results go to stdout, progress and messages to
// stderr. With --json the result is one document (one per line for streams), and an error is a
// problem object.
//
// Each subpackage contains the verbs of one command group. Package cli contains the code that they
// share, and package hangup the one init function. root.go lists all groups.
//
// # Invariants
//
//  1. A secret is never an argument and never printed, except the token that token mint or token
//     attenuate returns.
//  2. An irreversible verb requires --yes, or a confirmation typed at a terminal.
//  3. Every verb has help with examples that run unchanged, and appears in a transcript, for people
//     and with --json.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package main
