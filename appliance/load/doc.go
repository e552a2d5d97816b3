// Package load holds the tests and benchmarks that pay through a whole node in a process of its own, from as many connections as it takes:
// payments that come twice, a mixed load with restarts, and the figures that are set beside those of other services.
//
// # Invariants
//
//  1. A payment is made once however often it comes, and a repetition gets the bytes of its first answer.
//  2. After any load, with stops and kills in it, every balance is what the answers make it.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package load
