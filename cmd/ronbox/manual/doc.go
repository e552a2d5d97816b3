// Package manual embeds the manual: a page of Markdown for each topic. `ronbox help TOPIC` prints a
// page, and the console of a node renders it.
//
// # Invariants
//
//  1. README.md lists each topic, with the file of its page.
//  2. No topic has the name of a command, so that `ronbox help NAME` has one meaning.
//  3. Links lead to other topics only, and to headings that exist.
//  4. Each block of commands runs in a test, or says in its first line why it does not.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package manual
