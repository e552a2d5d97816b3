// Package auth mints and checks the node's tokens: macaroons whose caveats can only narrow what they allow.
//
// A token is a V2 binary macaroon in base64url without padding. Its identifier names the root key and the holder, its caveats are texts
// of the form "key op value". The first two are written at mint, its scope and its expiry; any holder of the token may append more.
//
// # Invariants
//
//  1. A token has one spelling: its decoded form, encoded again, must give the same bytes.
//  2. The MAC is verified before any caveat is checked. For every fault of a token one decoding and one MAC are computed, so that neither
//     the answer nor its time distinguishes an unknown key from a wrong MAC or from a text that is no token.
//  3. Caveats are conjunctive. One that is unknown, malformed or not met denies, and its meaning can depend on those before it only, so
//     that appending a caveat never widens, neither what is allowed here nor the Grant that engines ask later.
//  4. A token that does not begin with a scope and an expiry allows nothing, so that neither can be supplied later by its holder; nor does
//     one that lives for more than 30 days, so that a key or a revocation can be forgotten in the end.
//  5. A caveat that only one service reads denies on every other.
//  6. Errors for the caller say only "not authenticated" or "not allowed"; the reasons are for the log, and never hold the token.
//  7. An address that fails too often is refused before any MAC, but for valid tokens in the cache, which cost none. Success is never
//     counted.
//  8. The current State is immutable, behind one pointer. The cache holds that a token's MAC was right, and its policy; whether it is valid
//     is checked each time.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// verifiedCache.mu and failureCounter.mu, each held alone.
package auth
