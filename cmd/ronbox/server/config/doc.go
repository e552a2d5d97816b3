// Package config loads the configuration of the node: one typed value, read from a TOML file, the
// environment and one flag over built-in defaults.
//
// # Invariants
//
//  1. Every key has a default. A configuration without a file is valid.
//  2. An unknown key is refused in every source, with the closest known key.
//  3. All faults are reported together, each with its place: file, line and column, or variable.
//  4. The flag --data-dir wins over the environment, the environment over the file, the file over
//     the defaults.
//  5. The commented file that init writes lists exactly the known keys, with default and meaning.
//     The schema is generated from it.
//  6. The tag of a key states how a change applies: in place, with a new socket, or after a
//     restart. A key without a tag needs a restart.
//  7. The loader reads back the values that Explain and Diff show, except secrets, which are never
//     shown.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package config
