// Package upstream gets bytes from other hosts, for engines that depend on them: within a deadline, tried again, kept from a host that fails, and
// never from an address that the operator has not meant. Calls do the same for a callee in this process.
//
// # Invariants
//
//  1. A connection is made only to an address that Guard lets through, checked when it is dialled: a name that resolves anew cannot slip past. There
//     is no proxy. Without TLS only this host is called.
//  2. Each redirect passes the checks of the first address, and there are at most as many as the Spec says.
//  3. No try outlasts Spec.Timeout, its body included, and no body gives more bytes than the request allows: what is longer is an error, never cut.
//  4. A Get makes at most Spec.Tries tries and none after its context or while the breaker is open. An answer that came is not asked for again,
//     but for 503 and 504.
//  5. The breaker is told of each try once, by the time of the answer's header. What the caller or the policy refuses says nothing of the host,
//     and neither does how a try ends whose body the caller was too slow to read.
//  6. A call of Calls ends with its context. One that its caller has left says nothing of the callee; one that panics is a failure.
//
// # Tasks and queues
//
// none: a Get works in its caller's goroutine, beside those of net/http, which end with their connections.
//
// # Lock order
//
// none: nothing is locked here.
package upstream
