// Package openapitest holds answers of an HTTP surface against its own OpenAPI
// document, for tests: an answer that the document does not describe, in
// status, media type, header or body, is a fault of one of the two.
//
// # Invariants
//
//  1. What the document does not name is refused: a status, a media type, a
//     member of a body, an event of a stream.
//  2. A body is one JSON value without duplicate names, and so is every line of
//     a sequence and the data of every frame.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package openapitest
