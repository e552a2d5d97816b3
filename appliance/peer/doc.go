// Package peer connects the nodes of a cluster: the cluster's own certificate authority, the
// identity of a node, and the TCP port on which nodes reach each other.
//
// One port serves three protocols, chosen by ALPN over TLS 1.3:
//
//   - ronbox-raft/1: a client certificate, then a [Hello] each way, then raft.
//   - ronbox-peer/1: a client certificate, then HTTP/1.1.
//   - ronbox-join/1: no client certificate, then HTTP/1.1. The client knows the key of the
//     authority from its token.
//
// A certificate names its node in a URI SAN, ronbox://CLUSTER/SERVER. Both ids are ULIDs. The
// authority signs certificates of nodes with ed25519 for 90 days, which begin one day before they
// are signed; its own certificate lives for 10 years. Every member has the key of the authority,
// and renews its own key and certificate after 60 days without a restart. A cluster refuses a
// removed node by its list of members, not by revocation.
//
// # Invariants
//
//  1. Every connection of Raft and Peer comes from the holder of a certificate of this cluster. Its
//     Server is the id in that certificate.
//  2. Every connection that Dial returns leads to the holder of a certificate of this cluster.
//  3. At most 32 handshakes are in progress, at most 12 of them from one network (an IPv4 address
//     or an IPv6 /64), and at most 24 from networks without a known member. A handshake, including
//     the Hello, takes at most 5 s. A network without a known member gets its slot back 100 ms
//     later. Know and a handshake with a client certificate make a network known. A connection
//     beyond these bounds is closed unanswered.
//  4. At most 64 connections of Join are open, at most 16 of them from one network. Each
//     serves 4 requests. At most 64 connections of Raft and 512 of Peer are open per server.
//  5. A certificate that is out of date is refused, unless the node cannot know whether its clock
//     is right: else a wrong clock could keep a node from the members that correct it.
//  6. A private key has mode 0600 and is never read if other users may read it.
//  7. A Save that has returned nil survives a power cut. node.json is its last file, so a directory
//     without node.json has no identity. A renewal that was interrupted leaves an identity with
//     the dates of before.
//
// # Tasks and queues
//
//   - acceptor (32, always restarted): accepts, does the handshake, and passes the connection on.
//   - peer_server, join_server (1 each, always restarted): serve HTTP.
//   - raft_conns, peer_conns, join_conns (queues, 16 each, reject new): acceptor → the caller of
//     Accept. A rejected connection is closed.
//
// # Lock order
//
// slots.mu, familiar.mu and dialSlots.mu are leaf locks: they guard counters and sets.
package peer
