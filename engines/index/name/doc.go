// Package name defines the words of the index, which its engine, its routes and its clients share:
// keys of names, content ids, peer ids, signed records of names and providers, answers and errors.
// It uses no store and no task.
//
// # Invariants
//
//  1. A Key and a PeerID have one spelling, the canonical one, so that they compare as text.
//  2. A record is signed over its canonical CBOR under a domain of its kind. ParseProviderRecord
//     and ParseNameRecord accept no other bytes and return a *RecordError that names the member.
//  3. Merge is associative, commutative and idempotent: the order in which peers answer does not
//     change the merged set. Rank is a total order of providers with different ids.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None: values are immutable.
package name
