// Package client is the core of a client of the node's HTTP surface: over the
// admin socket, or over a URL with a token. The calls of a service are in its own
// package, httpapi/<service>, over a Client of this one. The commands use them,
// and so may any Go program that may import this module.
//
// A Client is safe for concurrent use. Every call takes a context, which bounds
// it together with Options.Timeout; every body that is read has a limit; every
// request carries a fresh correlation id, which the node echoes, logs and puts
// into its problems. The package starts no goroutine of its own.
//
// # Invariants
//
//  1. A refusal of the node is a *wire.Problem, unchanged.
//  2. ErrNotReachable means that nothing was sent; ErrUnknown means that a
//     request may have been sent and no complete answer came back, so only the
//     same request repeated, or a look at the state, can show what became of it.
//  3. A stream never shows a version or an audit row twice: what is at or below
//     the last id it has passed on is skipped after a reconnect. Only a lagged
//     event, which says that the node was restored, may lead back.
//  4. Over https nothing is sent before a TLS 1.3 handshake with a certificate
//     that the system or Options.CAFile vouches for.
//  5. A stream, or an export, that brings nothing for DefaultIdle, not even a
//     ping, is given up as ErrUnknown.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package client
