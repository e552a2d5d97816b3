// Package tokens issues the tokens of the node. It stores the token keys and the records of mints
// and revocations, and manages the node secret from which all keys are derived.
//
// # Invariants
//
//  1. Exactly one key mints. A rotated key verifies until the last token that it minted has
//     expired. A retired key verifies nothing.
//  2. A mint, rotation or revocation is synced and applied to the state of package auth before it
//     is answered. The claims of a token are stored, the token is not.
//  3. An actor cannot grant or revoke more than it holds: the caveats of a minter's token apply to
//     the tokens that it mints, an actor of a tenant sees and revokes only the tokens of that
//     tenant, and only an administrator manages keys.
//  4. A revocation is kept until every token that it covers has expired. The number of rows is
//     bounded.
//  5. The node secret is neither in the database nor in the log. Its file is refused if others may
//     read it.
//
// # Tasks and queues
//
// None: the node's janitor calls Sweep and RotateDue.
//
// # Lock order
//
// None.
package tokens
