package front

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Peer is the sender of a request.
type Peer struct {
	Addr   netip.Addr // of the client; the zero Addr over the socket, or if a proxy does not name it clearly
	Socket bool       // over the admin socket; UID and GID are set
	Inside bool       // asked by the node itself, for the client at Addr
	UID    uint32
	GID    uint32
	Relay  *Relay // nil: the client asked this node

	conn *conn // may be nil in tests
}

// Relay describes the node of the cluster that has forwarded a request, and what that node knows
// about the client.
type Relay struct {
	Node   string   // id of the node
	Scheme string   // that the client used; Host of the request is the host that it named
	Scopes []string // of a client at the admin socket of the node
}

// Serves sets the service of the next answer to p. A time-out while it is written counts for that
// service.
func (p *Peer) Serves(service string) {
	if p.conn != nil {
		p.conn.service = service
	}
}

// SendWindow replaces the write deadline of the next answer to p by one of d for each 64 KiB, so
// that the answer may take as long as its client keeps reading. It must be called before the first
// byte of the answer, is in effect until the last, and overrides deadlines set by
// http.ResponseController. On a plain TCP connection the kernel still sends files. SendWindow
// reports whether it has set the window: a peer of no connection of this package has none.
func (p *Peer) SendWindow(d time.Duration) bool {
	if p.conn != nil {
		p.conn.sender.SetWindow(d)
	}
	return p.conn != nil
}

// String formats the peer for logs. For a peer of a socket it is the name of the principal.
func (p *Peer) String() string {
	switch {
	case p.Socket && p.Relay != nil:
		return p.Relay.Node + "/uid:" + strconv.FormatUint(uint64(p.UID), 10)
	case p.Socket:
		return "uid:" + strconv.FormatUint(uint64(p.UID), 10)
	case p.Addr.IsValid():
		return p.Addr.String()
	}
	return ""
}

type peerKey struct{}

// The peer nobody belongs to requests that did not come over a listener of this package, as in
// tests.
var nobody = &Peer{}

// PeerOf returns the sender of r: the other end of the connection, or the client that it names if
// it is a trusted proxy. It is never nil and must not be modified.
func PeerOf(r *http.Request) *Peer {
	p := connPeer(r)
	if p.conn == nil || p.Socket || !p.conn.e.f.networks.Load().trusts(p.Addr) {
		return p
	}
	addr, named := forwarded(r.Header, p.conn.e.f.networks.Load().trusts)
	if !named {
		return p // the proxy itself is the client
	}
	return &Peer{Addr: addr, conn: p.conn}
}

// Forwarded reports whether a header of r names another client than the sender, and whether the
// sender is a proxy that is trusted to.
func Forwarded(r *http.Request) (named, trusted bool) {
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"} {
		named = named || len(r.Header[h]) > 0
	}
	p := connPeer(r)
	return named, p.conn != nil && !p.Socket && p.conn.e.f.networks.Load().trusts(p.Addr)
}

// Origin returns the scheme and host that the client of r requested: those of the request, or those
// named by the other end of the connection if it is a trusted proxy. The host is not validated.
func Origin(r *http.Request) (scheme, host string) {
	scheme, host = "http", r.Host
	if r.TLS != nil {
		scheme = "https"
	}
	p := connPeer(r)
	if p.Relay != nil {
		return p.Relay.Scheme, host
	}
	if p.conn == nil || p.Socket {
		return scheme, host
	}
	trusted := p.conn.e.f.networks.Load().trusts
	if !trusted(p.Addr) {
		return scheme, host
	}
	at := outermost(parseForwarded(r.Header["Forwarded"], "for"), trusted)
	if named := strings.ToLower(agreed(r.Header, "X-Forwarded-Proto", "proto", at)); named == "http" ||
		named == "https" {
		scheme = named
	}
	return scheme, cmp.Or(agreed(r.Header, "X-Forwarded-Host", "host", at), host)
}

// outermost returns the index of the element in Forwarded that the outermost trusted proxy has
// added, or -1. The other end of the connection has added the last element, and each element names
// the hop that added the one before.
func outermost(hops []string, trusted func(netip.Addr) bool) int {
	at := len(hops) - 1
	for at > 0 {
		if hop := parseHop(hops[at]); !hop.IsValid() || !trusted(hop) {
			break
		}
		at--
	}
	return at
}

// agreed returns the last value of a header, or a parameter of element at of Forwarded. It returns
// "" if both exist and differ, because a client can send the one that its proxy does not replace.
func agreed(h http.Header, name, param string, at int) string {
	var a, b string
	if lines := h[name]; len(lines) > 0 {
		last := lines[len(lines)-1]
		a = strings.Trim(last[strings.LastIndexByte(last, ',')+1:], " \t")
	}
	if at >= 0 {
		b = parseForwarded(h["Forwarded"], param)[at]
	}
	if a != "" && b != "" && !strings.EqualFold(a, b) {
		return ""
	}
	return cmp.Or(a, b)
}

// connPeer returns the other end of the connection.
func connPeer(r *http.Request) *Peer {
	if p, ok := r.Context().Value(peerKey{}).(*Peer); ok {
		return p
	}
	return nobody
}

// WithPeer sets the peer of the requests in ctx, as the listeners do.
func WithPeer(ctx context.Context, p *Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// forwarded returns the client that a trusted proxy names: the rightmost address in X-Forwarded-For
// or Forwarded that is not a trusted proxy, because elements further left come from the client
// itself. named is false if there is neither header. For an invalid address, and if the headers
// disagree, it returns the zero Addr, which no list permits: a client may send both headers and
// must not be able to choose.
func forwarded(h http.Header, trusted func(netip.Addr) bool) (client netip.Addr, named bool) {
	list, std := h["X-Forwarded-For"], h["Forwarded"]
	switch {
	case len(list) == 0 && len(std) == 0:
		return netip.Addr{}, false
	case len(std) == 0:
		return lastOfList(list, trusted), true
	case len(list) == 0:
		return rightmost(parseForwarded(std, "for"), trusted), true
	}
	a, b := lastOfList(list, trusted), rightmost(parseForwarded(std, "for"), trusted)
	if a != b {
		return netip.Addr{}, true
	}
	return a, true
}

// rightmost returns the last address that is not trusted, or the first one if all are.
func rightmost(hops []string, trusted func(netip.Addr) bool) (at netip.Addr) {
	for i := len(hops) - 1; i >= 0; i-- {
		if at = parseHop(hops[i]); !at.IsValid() || !trusted(at) {
			return at
		}
	}
	return at
}

// lastOfList returns the rightmost address in the lines of X-Forwarded-For. It does not split them,
// because every request from a proxy has the header.
func lastOfList(lines []string, trusted func(netip.Addr) bool) (at netip.Addr) {
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var hop string
			if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, hop = rest[:comma], rest[comma+1:]
			} else {
				hop, more = rest, false
			}
			if at = parseHop(strings.Trim(hop, " \t")); !at.IsValid() || !trusted(at) {
				return at
			}
		}
	}
	return at
}

// hiddenPort is the syntax of an obfuscated port (RFC 7239).
var hiddenPort = regexp.MustCompile("^[0-9A-Za-z._-]+$")

// parseHop parses an address with or without a port. It returns the zero Addr for other texts, such
// as "unknown".
func parseHop(s string) netip.Addr {
	if host, port, hidden := strings.Cut(s, ":_"); hidden && hiddenPort.MatchString(port) {
		ap, _ := netip.ParseAddrPort(host + ":0")
		return ap.Addr().Unmap().WithZone("")
	}
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil {
		if strings.HasPrefix(s, "[") != strings.HasSuffix(s, "]") {
			return netip.Addr{}
		}
		return a.Unmap().WithZone("")
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// parseForwarded returns the value of a parameter such as "for" for each element of the Forwarded
// lines (RFC 7239), or "" if the element does not have exactly one. Empty elements are skipped. A
// syntax error yields one "" for the rest of its line.
func parseForwarded(lines []string, param string) []string {
	var out []string
	for _, line := range lines {
		for rest, more := line, true; more; {
			var hop string
			var some bool
			if hop, rest, some, more = element(rest, param); some {
				out = append(out, hop)
			}
		}
	}
	return out
}

// element parses the parameters up to the next comma outside quotes, and returns the value of one
// of them. some reports whether there are any.
func element(s, param string) (hop, rest string, some, more bool) {
	for seen := 0; ; {
		s = strings.TrimLeft(s, " \t")
		switch {
		case s == "":
			return hop, "", some, false
		case s[0] == ',':
			return hop, s[1:], some, true
		case s[0] == ';':
			s = s[1:]
			continue
		}
		name, value, tail, ok := parameter(s)
		s, some = strings.TrimLeft(tail, " \t"), true
		if !ok || s != "" && s[0] != ',' && s[0] != ';' {
			return "", "", true, false
		}
		if strings.EqualFold(name, param) {
			hop, seen = value, seen+1
		}
		if seen > 1 {
			hop = ""
		}
	}
}

// parameter parses name=value, where value is a token or a quoted string. A token is not empty.
func parameter(s string) (name, value, rest string, ok bool) {
	name, s, ok = strings.Cut(s, "=")
	if !ok || !token.MatchString(name) {
		return "", "", "", false
	}
	if quoted, isQuoted := strings.CutPrefix(s, `"`); isQuoted {
		value, rest, ok = unquote(quoted)
		return name, value, rest, ok
	}
	end := strings.IndexAny(s, " \t,;")
	if end < 0 {
		end = len(s)
	}
	return name, s[:end], s[end:], end > 0
}

// unquote parses up to the closing quote.
func unquote(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}
