// Package calculus shares a pool among scores: ronbox-calculus/1 in mode share. It works on
// integers alone and knows neither documents nor names.
//
// # Invariants
//
//  1. It uses no floats, clocks, randomness or maps: equal inputs have equal results on every
//     machine.
//  2. Amounts and scores have 128 bits, products 256. A number that does not fit is a Breach, never
//     a wrap or a panic.
//  3. Payout plus residual equal the pool. Without a cap, a floor or a guarantee, each amount is
//     within 1 of its exact share.
//  4. Scores come in the order of their actors. Equal claims to a unit are decided by that order
//     alone.
//
// # Tasks and queues
//
// None. Share returns when it is done, or soon after its context has ended.
//
// # Lock order
//
// None.
package calculus
