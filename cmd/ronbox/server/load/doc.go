// Package load holds the tests and benchmarks that pay through a whole node in a process of its
// own, from as many connections as it takes: payments that come twice, a mixed load with restarts,
// and the figures that are set beside those of other services.
//
// # Invariants
//
//  1. A payment is applied once, however often it is sent. A repetition gets the bytes of the first
//     answer.
//  2. After any load, including stops and kills of the node, every balance equals the sum of the
//     answered payments.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package load
