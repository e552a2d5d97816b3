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
//  5. A peer outside console.allow gets the same 404 for every path below /console/ as for a path
//     that does not exist, whatever the method and however often it asks. So does a request with a
//     Host that is no address, no localhost, no name of the node's certificate and not listed in
//     console.hosts.
//  6. A token opens a session only if the node accepts it. A session ends no session of another
//     token or user, but for one that entered with a code and has node.admin.
//  7. A form has its own fields, each at most once. A revocation is done only when it was asked for
//     twice. A session of a token needs the scopes of the token, and server.admin_on_tcp for a form
//     that calls an admin route.
//  8. A form that is refused comes back with the status of the refusal and with its values, but for
//     secrets, and does nothing. So does nothing a form without a session: its sender enters again
//     and returns to the page. The entrance leads to pages below /console/ only.
//  9. A token that is minted is shown once, in the answer to its form. A form mints one token,
//     however often it is sent.
//
// A browser sends the cookies of a host to all its ports. The cookie's name has the node's id, so
// that nodes on one host do not end each other's sessions. A server of another user on the same
// address that the operator's browser visits can read the cookie: on a shared machine, reach the
// node by a name of its own, such as http://node.localhost:8080.
//
// # Proofs
//
// The page of a receipt and that of an item have a proof. Their scripts check its hashes up to the
// root of the ledger's log, or up to the root of the registry's checkpoint. They check no
// signature. The pages name the commands that check the whole proof.
//
// # Live updates and charts
//
// An open overview asks for its own page every two seconds, after the answer to the request before,
// and stops while its tab is hidden. The script then changes the nodes of the page that differ.
// There is no event stream. Each refresh is an ordinary request: its session, token, rates and
// scopes are checked as for any page, it holds no connection and no goroutine between two answers,
// and a page without script shows the same. Refreshes do not extend the session.
//
// Charts are SVG that the node draws, so that they need no script and no library, and are part of
// the refreshed page. Each chart has a table of the same values.
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
