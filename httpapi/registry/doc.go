// Package registry is the registry's part of the HTTP surface: its reads and its event stream, and the writes that make
// versions. New makes it from the engine behind Engine; Client calls it.
//
// # Invariants
//
//  1. Bytes that are hashed or signed are sent as they are stored; with their tags they may be kept for ever.
//  2. A write that is repeated gets the answer of the first, and says so.
//  3. A member name of a body is never renamed.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package registry
