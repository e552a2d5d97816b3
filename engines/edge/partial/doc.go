// Package partial keeps the beginning of an object whose fetch was interrupted, and resumes it.
//
// # Invariants
//
//  1. A try that resumes an object asks for the missing part under the ETag of the first part. A
//     part of another object, or another part than the requested one, is never appended.
//  2. A Set holds at most 64 partials, and at most the bytes that it was made for. Each is dropped
//     after two minutes, or when the room is needed, and its room is released then.
//
// # Tasks and queues
//
// None. The engine has package fill drop expired partials each second.
//
// # Lock order
//
// The mutex of a Set is a leaf.
package partial
