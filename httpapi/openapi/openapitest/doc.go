// Package openapitest checks the answers of an HTTP surface against its OpenAPI document in tests.
//
// An answer with a status, media type, header or body that the document does not describe is an
// error, either of the handler or of the document.
//
// # Invariants
//
//  1. A status, a media type, a member of a body or an event of a stream that the document does not
//     list is an error.
//  2. A body is one JSON value without duplicate names, and so is every line of a sequence and the
//     data of every frame.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package openapitest
