// Package ledger is the ledger's part of the HTTP surface: its roots and proofs, and the export of its records. Its routes
// stand under /v1 beside the wallet's, in whose service they are: they share its limits, its codes and its receipts. Routes makes
// them from the engine behind Engine; Client calls them.
//
// # Invariants
//
//  1. An export gives each record once and in order, whatever the bus loses, and one that ends early says so.
//  2. A member name of a body is never renamed.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package ledger
