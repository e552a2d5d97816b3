// Package calculus shares a pool among scores: ronbox-calculus/1 in mode share. It knows integers and nothing else, neither documents nor names.
//
// # Invariants
//
//  1. There is no float, no clock, no randomness and no map: the same numbers give the same numbers, on every machine.
//  2. Amounts and scores are of 128 bits, products of 256. What does not fit is a Breach, never a wrap and never a panic.
//  3. What is paid and the residual are together the pool. Without a cap, a floor or a guarantee each amount is within 1 of its exact share.
//  4. Scores come in the order of their actors; equal claims to a unit are settled by that order alone.
//
// # Tasks and queues
//
// none: Share returns when its work is done, or soon after its context has ended.
//
// # Lock order
//
// none: nothing is shared.
package calculus
