package auth

import (
	"net/netip"
	"time"
)

// Request is what a token is asked to allow. What lies below the line is judged where it is given; where it is not known yet, "" or 0, the
// engine judges it later by the actor's Grant.
type Request struct {
	Method  string
	Path    string // decoded, as the router matched it
	Service string
	Scope   string // "service.verb", "" if any valid token will do
	Now     time.Time
	IP      netip.Addr // not valid for a peer of the admin socket, and where a proxy does not tell it
	Socket  bool       // over the admin socket

	Tenant  string
	Account string
	Asset   string
	Amount  string // minor units in decimal
	Epoch   string
	Signer  string
	Bytes   int64 // of the body
}

// query is a request with what the node knows besides.
type query struct {
	Request
	skew    time.Duration
	amnesia bool
}
