// Package load holds tests and benchmarks that send payments over HTTP to a whole node in another
// process: a load with repeated requests, a mixed load with restarts, and a benchmark that is
// compared with other services.
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
// None.
//
// # Lock order
//
// None.
package load
