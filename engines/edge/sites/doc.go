// Package sites serves the files of sites: a name leads to a manifest, and the manifest to the
// objects of the files.
//
// # Invariants
//
//  1. A path of a site is served with the object that the current manifest of the name lists, with
//     the size that it lists and a type of the list of package site, or not at all.
//  2. A manifest that does not match an object harms the site only, and never the object.
//  3. A site that is kept is served in the edition that was complete last, without a lookup.
//  4. A request without the right to fetch causes a search only for an object of a manifest that
//     this process has opened. The manifests that were opened first are forgotten first.
//
// # Tasks and queues
//
// None. The flight manifest bounds the manifests that are parsed, or wait for that, to eight; the
// slots parsings let two be parsed at one time. The cache manifests_set keeps them parsed.
//
// # Lock order
//
// The mutex of the listing is a leaf.
package sites
