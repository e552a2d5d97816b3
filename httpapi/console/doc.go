// Package console serves the pages that show a node in a browser.
//
// Every page is HTML that works without script. The pages read the node through the typed clients
// of httpapi/node, httpapi/wallet and the other services, over a transport that calls the node's
// own router: the console has no private way to any data. Caveats, limits and services that are
// off apply to it as to any client.
//
// # Sessions
//
// A browser signs in with a one-time code that `ronbox console` has printed, or with a token, and
// gets a session cookie. A session from a code has the rights of the process that requested the
// code over the admin socket. A session from a token has the scopes and caveats of the token, which
// are checked again at each request. A session may change the node only if the user requested that
// when signing in.
//
// # Invariants
//
//  1. The cookie is sent for paths below /console/ only, and no other route reads it.
//  2. A code is accepted once, within 60 s.
//  3. A page without a session shows only the node's name and version.
//  4. GET changes nothing. A POST is refused unless the session may write, the request comes from
//     a page of this origin, and its field `form` is that of the session.
//  5. A peer outside console.allow, or a Host that is neither an address, localhost nor listed in
//     console.hosts, gets 404 from every page, as for a path that does not exist.
//  6. A token opens a session only if the node accepts it. A session ends no session of another
//     token or user, but for one that entered with a code and may end tokens.
//
// A cookie belongs to a host, whatever the port. A server of another user on the same address that
// the operator's browser visits can thus read it: on a machine that is shared, reach the node by a
// name of its own, such as http://node.localhost:8080.
//
// # Tasks and queues
//
// The console has no tasks and no queues. Its sessions, at most 64, and its codes, at most 16, are
// in memory and end with the process.
//
// # Lock order
//
// The mutex of sessions has the rank of counters. No other lock is taken under it.
package console
