// Package alerts embeds the Prometheus alert rules of the program.
//
// # Invariants
//
//  1. The description of each alert contains the next step, with commands and files of the
//     operator.
//  2. A fresh node has each series that a rule uses, and a promtool test makes each alert fire.
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
