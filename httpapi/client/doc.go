// Package client is the base of clients of the node's HTTP surface, over the admin socket, or over
// the URL of a node or those of the members of a cluster, with a token. The calls of wallet, ledger
// and node are in httpapi/wire/<service>, and those of the other services in httpapi/<service>. All
// use a Client of this package. The commands use them, and so may any Go program that can import
// this module.
//
// A Client is safe for concurrent use. Every call takes a context, which bounds it together with
// Options.Timeout. Every body that is read has a limit. Every request has a new correlation id,
// which the node returns, logs and includes in problems. The package starts no goroutine.
//
// # Invariants
//
//  1. A refusal of the node is returned unchanged, as a *wire.Problem.
//  2. ErrNotReachable means that no request was sent. ErrUnknown means that a request may have been
//     sent and no complete answer arrived; only repeating the request, or reading the state, shows
//     the outcome.
//  3. A stream never delivers a version or an audit row twice: after a reconnect it skips ids up to
//     the last delivered one. Only a lagged event, which reports a restored node, may move
//     back.
//  4. With https, no request is sent before a TLS 1.3 handshake with a certificate trusted by the
//     system or by Options.CAFile.
//  5. The token goes only to URLs that the caller has listed. A request goes to another one of them
//     only if it was not carried out: no node was reached, or the node refused it as not_leader.
//     After a lost answer only the next request goes to another one.
//  6. A stream or export that is silent for DefaultIdle, without even a ping, ends with ErrUnknown.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package client
