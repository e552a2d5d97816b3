// Package wallet implements the commands of the wallet: holding, moving and listing money, one
// operation or a file of them.
//
// # Invariants
//
//  1. A command that changes something prints its idempotency key before it sends the request, and
//     repeats the request with the same key until it gets an answer. The key is also the reference
//     of a money operation, unless --reference sets another. So an operation that is repeated with
//     its key is executed once, however late the repetition.
//  2. Each row of a batch file carries a reference: its own, RUN/N with --run, or else a hash of
//     the row. Two runs of the same rows send the same references, so the ledger executes each row
//     once. This does not depend on the state file, which records refusals and saves requests.
//  3. People read and write decimal amounts: in tables, in arguments, and in the column amount of a
//     batch file. Their digits after the point are those of the asset; without them nothing is
//     sent. Members and columns that end with _minor are minor units, and so is AMOUNT with
//     --minor.
//  4. A payment that would open an account is announced, or asked about at a terminal, unless the
//     command line says how to meet a new payee.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package wallet
