// Package scopes lists the scopes that routes require.
//
// # Invariants
//
//  1. The known scopes are those of the route tables and node.admin. There is no other list.
//  2. They do not depend on which services a node runs, so a token or configuration is valid before
//     its service is enabled.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package scopes
