// Package scopes knows every scope that a route of any service asks for.
//
// # Invariants
//
//  1. The known scopes are those of the route tables and node.admin; there is no second list.
//  2. They do not depend on which services a node runs, so that a token or a configuration is valid before its service is on.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package scopes
