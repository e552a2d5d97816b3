// Package auth mints and checks the node's tokens. A token is a macaroon. Its caveats can only
// restrict it.
//
// The text of a token is a V2 binary macaroon in base64url without padding. Its identifier names
// the root key and the holder. Its caveats are texts of the form "key op value". The first two are
// written when the token is minted: its scope and its expiry. Any holder may append more.
//
// # Invariants
//
//  1. A token has one text: decoding and encoding it again yields the same bytes.
//  2. The MAC is verified before any caveat is checked. For every invalid token one decoding and
//     one MAC are computed. So neither the answer nor its time distinguishes an unknown key from a
//     wrong MAC or a malformed text.
//  3. Caveats are a conjunction. A caveat that is unknown, malformed or not met denies. The meaning
//     of a caveat depends only on those before it, so appending one never permits more, neither
//     here nor in the Grant that engines check later.
//  4. A token that does not begin with a scope and an expiry permits nothing, so its holder cannot
//     add them later. A token with a lifetime of more than 30 days permits nothing, so keys and
//     revocations can be forgotten.
//  5. A caveat for one service denies in every other service.
//  6. Errors for the caller say only "not authenticated" or "not allowed". Reasons are logged and
//     never contain the token.
//  7. An address with too many failures is refused before any MAC is computed. Valid tokens in the
//     cache are still accepted. Successes are not counted.
//  8. The current State is immutable and held by one pointer. The cache records that the MAC of a
//     token was verified, and its policy. Whether the token is valid now is checked for each
//     request.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// verifiedCache.mu and failureCounter.mu. They are never held together.
package auth
