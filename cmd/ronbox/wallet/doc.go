// Package wallet implements the commands of the wallet: holding, moving and listing money, one
// operation or a file of them.
//
// # Invariants
//
//  1. A command that changes something prints its idempotency key before it sends the request, and
//     repeats the request under the same key until it gets an answer. A money operation is sent
//     with the key as its reference, unless --reference gives another: repeated with the key it is
//     done once, however late.
//  2. Each row of a batch file carries a reference: its own, RUN/N with --run, or else a hash of
//     the row. Two runs of the same rows send the same references, so the ledger does each row
//     once. The state file is not needed for that; it keeps the refusals and spares requests.
//  3. Amounts in JSON, CSV and batch files are minor units. Only tables and command-line arguments
//     use the decimals of an asset.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package wallet
