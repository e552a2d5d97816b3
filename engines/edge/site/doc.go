// Package site reads and writes the manifests of sites. A manifest is a document of schema
// ronbox.site/1 that lists the files of a site: the path of each, its digest, its size and its
// media type.
//
// # Invariants
//
//  1. A manifest has one spelling, that of package canon: members sorted by bytes, no white space,
//     numbers as decimal strings. Parse accepts this spelling alone, and Encode writes it, so equal
//     sites have equal digests.
//  2. A manifest has 1 to MaxFiles files and at most MaxBytes bytes.
//  3. A parsed manifest holds the document and 4 bytes for each file. Find is a binary search in
//     it, and allocates nothing.
//  4. A path is relative and clean: it has no empty or dotted segment. So a path that leaves the
//     site cannot be written.
//  5. Look returns a file of the manifest, which the path, and the rules for pages and compressed
//     forms, determine. It never leaves the manifest, whatever the request says.
//  6. Served returns media types of a closed list. The type that a manifest names is served only if
//     it is in the list.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package site
