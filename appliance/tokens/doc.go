// Package tokens issues the node's tokens: their keys, the records of mints and revocations, and the node secret that all keys come from.
//
// # Invariants
//
//  1. One key mints. A rotated one verifies until the last token that it minted has expired; a retired one verifies nothing.
//  2. The keys and revocations that auth verifies with follow the file command by command: a mint, a rotation, a revocation is synced and applied before it is
//     answered. A token is never stored, only its claims.
//  3. No actor hands out or ends more than it holds: the caveats of a minter's token hold for its mints, an actor of one tenant sees
//     and ends that tenant's tokens, and keys are an administrator's.
//  4. A revocation is kept as long as a token that it voids could live, and rows are bounded in number.
//  5. The node secret is in no database and no log line; its file is refused if others may read it.
//
// # Tasks and queues
//
// none: the node's janitor calls Sweep and RotateDue.
//
// # Lock order
//
// none
package tokens
