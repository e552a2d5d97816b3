// Package packtest creates map packs for tests: valid packs, and hostile packs as an attacker might
// supply them.
//
// # Invariants
//
//  1. Every hostile pack is generated in milliseconds and has at most a few megabytes.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package packtest
