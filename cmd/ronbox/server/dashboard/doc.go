// Package dashboard generates a Grafana dashboard for the metrics of the program.
//
// # Invariants
//
//  1. Each query uses only metrics of the catalogue, with labels that they have. Counters are used
//     only as rates, and gauges never.
//  2. A legend uses only labels that its query keeps.
//  3. The same catalogue gives the same bytes.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package dashboard
