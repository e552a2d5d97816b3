// Package upstream is an HTTP client for engines that depend on other hosts, with deadlines,
// retries, a circuit breaker and an address policy. [Calls] does the same for a callee in this
// process.
//
// # Invariants
//
//  1. A connection is made only to an address that Guard permits. The address is checked when it is
//     dialled, so a name that resolves differently later is checked as well. No proxy is used.
//     Without TLS only this host is called. With Spec.Pins, a host is called exactly if it proves
//     to have one of the pinned keys; its chain, names and dates are then not checked. [NodeRule]
//     sets this up for endpoints that a registry names. Clients of one [Transport] share its
//     connections and these rules; after Shut no later call meets one of them.
//  2. Each redirect passes the checks of the first URL. At most as many redirects as Spec permits
//     are followed.
//  3. A try ends after its timeout, which includes its body, and after Request.Idle without a byte.
//     A body longer than the request permits is an error and is never truncated.
//  4. A Get makes at most Spec.Tries tries, and none after its context has ended or while the
//     breaker is open. After an answer there is no retry, except for 503 and 504.
//  5. The breaker gets one result per try, when the header of the answer arrives. A request that
//     the caller or the policy refuses does not count. A try that ends because its caller read the
//     body too slowly does not count either.
//  6. A call of Calls ends with its context. A call that was abandoned by its caller does not
//     count. A call that panics counts as failed.
//
// # Tasks and queues
//
// None. A Get runs on its caller's goroutine and on those of net/http, which end with their
// connections.
//
// # Lock order
//
// None.
package upstream
