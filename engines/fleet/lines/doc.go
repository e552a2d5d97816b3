// Package lines keeps the connections to the other nodes of a fleet. A line leads to one node,
// under the keys that its item pins; the edge, the index and the collection of statements share it.
//
// # Invariants
//
//  1. A node is called under the pins of its item and the rule of this node, or not at all. A node
//     whose item is not sound has a fault in place of a line.
//  2. A line stays as long as the endpoint and the pins of its node and the rule stay. A line that
//     ends closes its connections, so that no later call meets one that was made under other pins.
//  3. Lines are immutable. A reader uses one version of the registry.
//  4. Breakers belong to the services that step them. A service that keeps one for each line finds
//     it by the pointer.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None. The current lines are an atomic pointer.
package lines
