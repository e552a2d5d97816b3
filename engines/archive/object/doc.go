// Package object reads and writes the objects of an archive: a part of the log of a node, a part of
// a base, or a part of the file of a closed period, compressed, encrypted and signed.
//
// Format 1 of an object is
//
//	magic      8 bytes: RBARCH01
//	length     4 bytes: of the header, at most 65,536
//	header     JSON
//	payload    age of one zstd frame, or the frame alone
//	sum        32 bytes: BLAKE3 of all before
//	signature  64 bytes: Ed25519 of the sum, by the key that the header names
//
// The plain log is entries of package store, each after its length of 4 bytes. The plain base is
// the manifest of a snapshot after its length of 4 bytes, then the file, cut every 4 MiB. The file
// of a period is cut so, too: the header of each part has the sum of the file. All numbers are
// big-endian.
//
// # Invariants
//
//  1. Parse accepts an object only if its sum and its signature are right, and Plain returns
//     exactly the bytes that its header announces. No length is believed before it was compared
//     with its bound.
//  2. An object of another format is ErrFormat and not damage. Every format ends in sum and
//     signature, so that a changed byte of the version is damage.
//  3. Without an identity the plain bytes of an encrypted object cannot be read; everything else of
//     it can be checked.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package object
