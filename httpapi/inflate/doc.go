// Package inflate decompresses request bodies and stops at a decompression bomb.
//
// # Invariants
//
//  1. The output never exceeds ratio times the input read so far, nor the absolute cap. Both are
//     checked before bytes are returned.
//  2. One layer: a list of encodings is refused, and decompressed content is never decompressed
//     again.
//  3. At most one window is kept in memory, 32 KiB for gzip and up to 8 MiB for zstd. No goroutine
//     is started.
//  4. An error of the underlying body, such as a cap or a timeout, is returned unchanged. Any other
//     error is one of those declared here.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package inflate
