// Package ledger is the HTTP surface of the ledger: its roots, proofs and export. Its routes are
// under /v1 in the wallet's service, and share the wallet's limits, codes and receipts. Routes
// builds them from an Engine. The bodies are in httpapi/wire/ledger.
//
// # Invariants
//
//  1. An export has each record once and in order, even if the bus drops events. An export that
//     ends early says so.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package ledger
