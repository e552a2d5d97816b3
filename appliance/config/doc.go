// Package config is the node's configuration: one typed value, read from a TOML file, the environment and one flag
// over built-in defaults.
//
// # Invariants
//
//  1. Every key has a default, so that no file at all is a valid configuration.
//  2. A key that does not exist is refused wherever it is written, with the nearest one that does.
//  3. All faults are reported at once, each with its place: file line and column, or variable.
//  4. The flag --data-dir wins over the environment, the environment over the file, the file over the defaults.
//  5. The commented file that init writes lists every key with its default and its meaning, and nothing else; the schema is made of both.
//  6. Every key is of one class: taken in place, by listening anew, or by a restart. A field without a tag needs a restart.
//  7. What Explain and Diff show is what the loader reads back, but for secrets, which no text of the package shows.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package config
