// Package alerts holds the alert rules that are shipped with the program, for Prometheus.
//
// # Invariants
//
//  1. Each alert says in its description what to do next, in verbs and files that the operator has.
//  2. Each series that a rule asks for is there on a fresh node, and a test of promtool makes each alert fire.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package alerts

import _ "embed" // of the rules

// Rules is a file for rule_files of Prometheus.
//
//go:embed alerts.yml
var Rules string
