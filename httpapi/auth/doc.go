// Package auth mints and judges the node's tokens: macaroons whose caveats can only narrow what they allow.
//
// A token is a V2 binary macaroon in base64url without padding. Its identifier names the root key and the holder, its caveats are texts
// of the form "key op value". The first two are written at mint, its scope and its expiry; anyone who holds the token may append more.
//
// # Invariants
//
//  1. A token has one spelling: what decodes is encoded again and must give the same bytes.
//  2. The MAC is verified before any caveat is judged. Whatever is wrong with a token, one decoding and one MAC are computed, so that
//     neither the answer nor its time tells an unknown key from a wrong MAC or from what is not even a token.
//  3. Caveats are conjunctive. One that is unknown, malformed or not met denies, and what one means can depend on those before it only, so
//     that appending a caveat never widens, neither what is allowed here nor the Grant that engines ask later.
//  4. A token that does not begin with a scope and an expiry allows nothing, so that neither can be supplied later by its holder; nor does
//     one that lives for more than 30 days, so that a key or a revocation can be forgotten in the end.
//  5. A caveat that only one service reads denies on every other.
//  6. Errors for the caller say only "not authenticated" or "not allowed"; the reasons are for the log, and never hold the token.
//  7. An address that fails too often is turned away before any MAC, but for tokens that are known to stand, which cost none. Success is
//     never counted.
//  8. What is in force is one immutable State behind one pointer. What is remembered of a token is that its MAC was right and how its
//     caveats read; whether it stands is judged anew each time.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// proven.mu and tally.mu, each held alone.
package auth
