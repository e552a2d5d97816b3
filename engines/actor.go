package engines

import "slices"

// Actor is who asks, as auth saw it. The zero Actor is nobody; an engine decides only on an Actor that auth handed out.
type Actor struct {
	// CapID is the id of the token that allowed the call, "" for a peer of the admin socket.
	CapID string
	// Kid names the key that made the token.
	Kid string
	// Fingerprint names the token itself in a log: narrowed ones share the id, never the fingerprint.
	Fingerprint string
	// Principal is the token's subject, or how the socket names its peer.
	Principal string
	// Tenant is the one tenant this actor may act for, "" for any.
	Tenant string
	// UID is the Unix user id of a peer of the admin socket, nil for a call over TCP.
	UID *uint32
	// Admin says that the actor holds every scope.
	Admin bool
	// Scopes are the scopes that the actor holds, such as "wallet.transfer". They are not changed once the actor is handed out.
	Scopes []string
	// Signer is the one registry signer this actor may act for, "" for any.
	Signer string
	// Grant is what the engine must still check, nil for nothing.
	Grant *Grant
	// Caveats are what the token says beyond a scope and an expiry, a ttl as the time that it means: whoever hands out more
	// by it must not go beyond them.
	Caveats []string
}

// Anonymous says whether no one was identified.
func (a Actor) Anonymous() bool {
	return a.CapID == "" && a.Principal == "" && a.UID == nil
}

// May says whether a holds the scope; one who is Admin holds every one.
func (a Actor) May(scope string) bool {
	return a.Admin || slices.Contains(a.Scopes, scope)
}
