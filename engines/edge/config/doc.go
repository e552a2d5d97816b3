// Package config holds the section [edge] of the configuration.
//
// # Invariants
//
// A Config that Validate accepts can be served: each bound is within its limits, and each host and
// network parses.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package config
