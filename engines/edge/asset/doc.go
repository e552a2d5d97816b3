// Package asset holds the words that the edge shares with its routes and its clients: the path of
// an asset and its meaning, the object that a request gets, and the errors and reasons of refusals.
//
// # Invariants
//
//  1. It imports neither the store nor another engine, so that a client links neither.
//  2. A path has one meaning or none. The URL of a target leads to the same target again.
//  3. No text of a FillError contains the query of a URL, because the query of a signed URL is a
//     credential.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package asset
