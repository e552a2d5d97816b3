// Package inflate reads compressed request bodies and stops where one turns out to be a bomb.
//
// # Invariants
//
//  1. What comes out is never more than ratio times what was read so far, and never more than the absolute cap; both are counted while
//     bytes stream, before they are handed on.
//  2. One layer: a list of encodings is refused, and what a layer holds is never decoded again.
//  3. No more than one window is kept in memory, 32 KiB for gzip and at most 8 MiB for zstd; nothing runs beside the caller.
//  4. An error of the body itself, a cap or a timeout, comes through as it is; whatever else is wrong is one of the errors here.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package inflate
