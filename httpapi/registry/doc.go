// Package registry is the part of the HTTP surface for the registry: its reads, its event stream,
// and its writes. New builds it on an Engine; Client calls it.
//
// # Invariants
//
//  1. Bytes that are hashed or signed are sent as they are stored. With their tags they may be
//     cached for ever.
//  2. A repeated write gets the answer of the first one, and a header that says so.
//  3. A member of a body is never renamed.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package registry
