// Package registrytest provides the rig of the registry's tests: an engine on a real store in a
// temporary file, under a supervisor, with keys that sign for it.
//
// # Invariants
//
//  1. A rig that was made by New is stopped when its test ends.
//  2. Waits end with a condition. Only a fault takes as long as Patience.
//
// # Tasks and queues
//
// Those of the engine and the store. Start starts them and Stop ends them in the order of a node.
//
// # Lock order
//
// None.
package registrytest
