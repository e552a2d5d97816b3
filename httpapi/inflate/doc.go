// Package inflate reads compressed request bodies and stops at a decompression bomb.
//
// # Invariants
//
//  1. The output is never more than ratio times the input read so far, and never more than the absolute cap; both are counted while
//     bytes stream, before they are returned.
//  2. One layer: a list of encodings is refused, and the content of a layer is never decoded again.
//  3. No more than one window is kept in memory, 32 KiB for gzip and at most 8 MiB for zstd; nothing runs beside the caller.
//  4. An error of the body itself, a cap or a timeout, is returned as it is; any other fault is one of the errors here.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package inflate
