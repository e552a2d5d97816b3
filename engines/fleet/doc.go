// Package fleet reads the items of a version of the registry as the nodes of a fleet do: which
// nodes there are, the names each of them owns, the content placed in a region, the services to
// scrape, and the policies that are pinned.
//
// It is a leaf: it knows the form of descriptors (engines/registry/record) and no other engine.
//
// # Invariants
//
//  1. A View is a function of the version, the genesis and the items. It never changes.
//  2. An item that breaks a convention has no effect, and Faults names it. A pin of a policy is the
//     exception: it pins nothing, but BadPins has it, and it binds its tenant, since who wrote it
//     wanted no other policy to run. Items of kinds without a convention, and members of a meta
//     that no convention names, are legal.
//  3. No two nodes of a View share an identity or a name suffix. If two items claim one, both are
//     left out.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package fleet
