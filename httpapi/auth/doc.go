// Package auth mints and judges the node's tokens: macaroons whose caveats can only narrow what they allow.
//
// A token is a V2 binary macaroon in base64url without padding. Its identifier names the root key and the holder, its caveats are texts
// of the form "key op value". The first two are written at mint, its scope and its expiry; anyone who holds the token may append more.
//
// # Invariants
//
//  1. A token has one spelling: what decodes is encoded again and must give the same bytes.
//  2. The MAC is verified before any caveat is judged, and no answer tells an unknown key from a wrong MAC.
//  3. Caveats are conjunctive. One that is unknown, malformed or not met denies, so that appending a caveat never widens.
//  4. A token that does not begin with a scope and an expiry allows nothing, so that neither can be supplied later by its holder.
//  5. Errors for the caller say only "not authenticated" or "not allowed"; the reasons are for the log, and never hold the token.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package auth
